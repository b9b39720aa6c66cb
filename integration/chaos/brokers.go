//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// A broker is one that relays publish to, and what the rig knows of it by itself.
type broker struct {
	name   string // in the configuration
	server *serverKind
	// Settings are those of the configuration, for a process that has the server at a URL.
	settings func(url string) string
	mayLeave []string // in the form in which its messages are, by the path in their JSON
	// Ordered says that the projections get the events of a key in their order.
	ordered bool
	// Read calls hold for each message that the broker holds, in its order.
	read func(ctx context.Context, s *servers, hold holder) error
}

// holder takes a message that a broker holds: its flat fields, its payload, and when it arrived.
type holder func(fields map[string]string, payload []byte, at time.Time) error

// brokers are all that the rig has. The first is the internal one, the others can be left out.
var brokers = []*broker{
	{
		name: scenario.Internal, server: redisServer,
		settings: func(url string) string { return fmt.Sprintf("type: redis, url: %q", url) },
		read: func(ctx context.Context, s *servers, hold holder) error {
			return readRedis(ctx, s, scenario.Streams(), hold)
		},
	},
	{
		name: scenario.Partner, server: redisServer,
		settings: func(url string) string {
			return fmt.Sprintf(`type: redis, url: %q, format: cloudevents, destination: "%s{stream}"`, url, scenario.PartnerPrefix)
		},
		mayLeave: cloudEvents,
		read: func(ctx context.Context, s *servers, hold holder) error {
			return readRedis(ctx, s, scenario.PartnerStreams(), hold)
		},
	},
	{
		name: scenario.PubSub, server: pubSubServer,
		settings: func(url string) string {
			return fmt.Sprintf("type: pubsub, project: %s, endpoint: %q", scenario.Project, url)
		},
		mayLeave: externalForm,
		read:     readPubSub,
	},
	{
		name: scenario.RabbitMQ, server: rabbitMQServer,
		settings: func(url string) string {
			return fmt.Sprintf("type: rabbitmq, url: %q, exchange: %s, format: cloudevents", url, scenario.Exchange)
		},
		mayLeave: cloudEvents,
		ordered:  true, // by x-single-active-consumer
		read:     readRabbitMQ,
	},
	{
		name: scenario.NATS, server: natsServer,
		settings: func(url string) string { return fmt.Sprintf("type: nats, url: %q", url) },
		mayLeave: externalForm,
		ordered:  true, // by one process alone
		read:     readNATS,
	},
	{
		name: scenario.Kafka, server: kafkaServer,
		settings: func(url string) string {
			return fmt.Sprintf("type: kafka, bootstrap_servers: %q, format: cloudevents", url)
		},
		mayLeave: cloudEvents,
		ordered:  true, // by the partitions, which are one member's at a time
		read:     readKafka,
	},
}

// brokersOf are the internal broker and the external ones of those names; all for none.
func brokersOf(names []string) ([]*broker, error) {
	if len(names) == 0 {
		return brokers, nil
	}
	chosen, known := brokers[:1:1], []string{}
	for _, b := range brokers[1:] {
		if known = append(known, b.name); slices.Contains(names, b.name) {
			chosen = append(chosen, b)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("chaos: there is no external broker %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// takes reports whether an event is routed to the broker.
func (b *broker) takes(is fact) bool { return is.published || b.internal() }

func (b *broker) internal() bool { return b.name == scenario.Internal }
