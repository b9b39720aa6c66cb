package gcppubsub_test

import (
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

// emulator is Google's, in a project of this test's own.
type emulator struct {
	addr, project string
	client        *pubsub.Client

	mu   sync.Mutex
	seen map[string][]brokers.Message // by destination
}

func newEmulator(t *testing.T) *emulator {
	t.Helper()
	address := os.Getenv("FANOUT_TEST_PUBSUB")
	if address == "" {
		t.Skip("FANOUT_TEST_PUBSUB names no emulator")
	}
	e := &emulator{addr: address, project: "acme-" + strings.ToLower(rand.Text()[:10]), seen: map[string][]brokers.Message{}}
	var err error
	e.client, err = pubsub.NewClient(t.Context(), e.project, append(clientOptions(), option.WithEndpoint(e.addr))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.client.Close()) })
	return e
}

func (e *emulator) open(t *testing.T, settings ...gcppubsub.Settings) *gcppubsub.Broker {
	t.Helper()
	return openAt(t, e.addr, e.project, settings...)
}

func (e *emulator) subscription(topic string) string {
	return "projects/" + e.project + "/subscriptions/" + topic
}

// createTopic creates a topic, and a subscription of the same name that keeps what is published to it.
func (e *emulator) createTopic(t *testing.T, topic string) {
	t.Helper()
	name := "projects/" + e.project + "/topics/" + topic
	_, err := e.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name})
	require.NoError(t, err)
	e.subscribe(t, topic)
}

func (e *emulator) subscribe(t *testing.T, topic string) {
	t.Helper()
	_, err := e.client.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: e.subscription(topic), Topic: "projects/" + e.project + "/topics/" + topic, EnableMessageOrdering: true, AckDeadlineSeconds: 600,
	})
	require.NoError(t, err)
}

// received is what a subscriber of a destination's topic gets. It ends with the first messages that were
// published meanwhile: there may be no end of them.
func (e *emulator) received(t *testing.T, destination string) []brokers.Message {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	subscription := e.subscription(gcppubsub.TopicID(destination))
	began := time.Now()
	for later := false; !later; {
		answer, err := e.client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: subscription, MaxMessages: 1000, ReturnImmediately: true, //nolint:staticcheck // it is what a look is
		})
		require.NoError(t, err)
		if len(answer.GetReceivedMessages()) == 0 {
			break
		}
		later = true
		var acks []string
		for _, got := range answer.GetReceivedMessages() {
			m := got.GetMessage()
			e.seen[destination] = append(e.seen[destination], fromWire(destination, m.GetOrderingKey(), m.GetData(), m.GetAttributes()))
			acks = append(acks, got.GetAckId())
			later = later && m.GetPublishTime().AsTime().After(began)
		}
		require.NoError(t, e.client.SubscriptionAdminClient.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: subscription, AckIds: acks}))
	}
	return slices.Clone(e.seen[destination])
}
