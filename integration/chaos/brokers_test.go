//go:build unix

package chaos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// The internal broker is there always, the external ones in the rig's own order; each has a
// configuration that is understood.
func TestBrokersOf(t *testing.T) {
	t.Parallel()
	all, err := brokersOf(nil)
	require.NoError(t, err)
	assert.Len(t, all, 6)
	chosen, err := brokersOf([]string{scenario.NATS, scenario.Partner})
	require.NoError(t, err)
	require.Len(t, chosen, 3)
	for n, name := range []string{scenario.Internal, scenario.Partner, scenario.NATS} {
		assert.Equal(t, name, chosen[n].name)
	}
	assert.Equal(t, brokers, all, "it was not changed")
	_, err = brokersOf([]string{scenario.Internal})
	require.ErrorContains(t, err, "no external broker \"default\"; there are partner, pubsub, rabbitmq, nats, kafka")

	kind, err := databaseOf("postgres")
	require.NoError(t, err)
	s := &fixture{brokers: all, database: kind, options: Options{}.withDefaults()}
	cfg, err := config.Parse([]byte(s.configuration("postgres://127.0.0.1/x", map[*serverKind]string{
		redisServer: "redis://127.0.0.1:1", pubSubServer: "127.0.0.1:2", rabbitMQServer: "amqp://127.0.0.1:3/", natsServer: "nats://127.0.0.1:4",
		kafkaServer: "127.0.0.1:5,127.0.0.1:6",
	})), "chaos.yaml")
	require.NoError(t, err)
	assert.Len(t, cfg.Brokers, 6)
	assert.Equal(t, []string{"partner", "pubsub", "rabbitmq", "nats", "kafka"}, cfg.Outbox.ExternalBrokers)
}

// Whatever kind of fault a server has, there is a server that has it, and a place in the deck.
func TestFaultsOfServers(t *testing.T) {
	t.Parallel()
	signals := map[Kind]string{}
	for _, d := range databases {
		for kind := range d.signals {
			signals[kind] = "database"
		}
	}
	for _, b := range brokers {
		for kind := range b.server.signals {
			signals[kind] = b.server.name
		}
	}
	assert.Equal(t, serverOf, signals)
}

// A fault hits its node, and one that takes the quorum all others. One that finds a node of its away does
// nothing, to the others as well.
func TestFaultsOfNodes(t *testing.T) {
	t.Parallel()
	at := &server{nodes: []*node{{name: "kafka-1"}, {name: "kafka-2"}, {name: "kafka-3"}}}
	at.become("kafka", kafkaServer.signals)
	assert.Equal(t, at.nodes[1:2], at.hit(Fault{Kind: KafkaKill, Target: "kafka-2"}))
	assert.Equal(t, []*node{at.nodes[0], at.nodes[2]}, at.hit(Fault{Kind: KafkaQuorum, Target: "kafka-2"}))
	s := &servers{database: &server{}, brokers: map[*serverKind]*server{kafkaServer: at}}
	assert.Equal(t, []string{"kafka-1", "kafka-2", "kafka-3"}, s.nodes()["kafka"])

	at.nodes[2].away.Lock()
	require.ErrorIs(t, s.outage(t.Context(), Fault{Kind: KafkaQuorum, Target: "kafka-2"}), errAway)
	assert.True(t, at.nodes[0].away.TryLock(), "it waits for no end of a fault that was not")
}
