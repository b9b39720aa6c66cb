package pubsubconsumer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

type orderPlaced struct {
	OrderID string `json:"order_id"`
}

// From the real publisher to the handler, in each form.
func TestForms(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	broker := gcppubsub.New(newClient(t, s.Addr), gcppubsub.Settings{Topic: func(string) string { return topic }})
	t.Cleanup(func() { require.NoError(t, broker.Close(context.Background())) })
	var (
		ids      []uuid.UUID
		messages []brokers.Message
	)
	add := func(id uuid.UUID, payload []byte, more ...brokers.Attribute) {
		ids = append(ids, id)
		messages = append(messages, brokers.Message{
			ID: id.String(), Destination: "ordering::order", Type: "Ordering.OrderPlaced.v1", OrderingKey: "ordering::order-1",
			Payload: payload, Attributes: more,
		})
	}
	events := envelope.NewCatalog("ordering")
	envelope.Register[orderPlaced](events, envelope.Published(), envelope.Name("OrderPlaced"))
	for _, marshal := range []func(*envelope.Message) ([]byte, error){
		(*envelope.Message).MarshalInternal, func(m *envelope.Message) ([]byte, error) { return m.MarshalExternal(envelope.Include{}) },
		func(m *envelope.Message) ([]byte, error) { return m.MarshalCloudEvent(envelope.CloudEventOptions{}) },
	} {
		m, err := events.Seal(envelope.NewEvent(orderPlaced{"1"}), envelope.Source{Aggregate: "Order", ID: "1"}, envelope.Context{})
		require.NoError(t, err)
		encoded, err := marshal(m)
		require.NoError(t, err)
		add(m.Metadata.Headers.ID, encoded)
	}
	binary := uuid.New()
	add(binary, []byte(`{"order_id":"1"}`), brokers.Attribute{Name: "ce-specversion", Value: "1.0"}, brokers.Attribute{Name: "ce-id", Value: binary.String()},
		brokers.Attribute{Name: "ce-source", Value: "/elsewhere"}, brokers.Attribute{Name: "ce-type", Value: "Ordering.OrderPlaced.v1"},
		brokers.Attribute{Name: "content-type", Value: "application/json"})
	for _, result := range broker.Publish(t.Context(), messages) {
		require.NoError(t, result.Err)
	}
	var (
		mu  sync.Mutex
		got []*inbox.Message
	)
	start(t, newClient(t, s.Addr), inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
		return inbox.Handled, nil
	}))
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, got, 4)
	for i, m := range got {
		assert.Equal(t, ids[i], m.Key)
		assert.Equal(t, ids[i].String(), m.ID)
		assert.Equal(t, "Ordering.OrderPlaced.v1", m.Type)
		assert.Equal(t, "ordering::order-1", m.OrderingKey)
		assert.JSONEq(t, `{"order_id":"1"}`, string(m.Envelope.Data))
		assert.Equal(t, "billing", m.Consumer)
		assert.Equal(t, name, m.Source)
		assert.Equal(t, s.all()[i].ID, m.Position)
		assert.WithinDuration(t, s.all()[i].PublishTime, m.Published, 0)
		assert.Zero(t, m.Deliveries, "Pub/Sub does not count without a dead letter policy")
	}
	assert.Equal(t, []envelope.Format{envelope.FormatInternal, envelope.FormatNative, envelope.FormatCloudEvents, envelope.FormatCloudEvents},
		[]envelope.Format{got[0].Format, got[1].Format, got[2].Format, got[3].Format})
}

// Attributes of a dead letter fit Pub/Sub's limits, whatever the message has.
func TestAttributesOfDeadLetters(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	full := map[string]string{}
	for n := range maxAttributes - 2 {
		full[fmt.Sprint("a", n)] = "v"
	}
	s.Publish(topic, []byte("nonsense"), full)
	var letters []*pubsubpb.PubsubMessage
	c := hurried(t, newClient(t, s.Addr), newLedger(t, nil), Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always("orders-dead")}})
	for _, why := range []string{strings.Repeat("é", 600), "\xff", ""} {
		e := &consumer.Entry{ID: "m1", Message: &inbox.Message{Position: "m1", Attributes: full}, History: consumer.History{Why: fmt.Errorf("%s", why)}}
		letters = append(letters, c.letter(e, "k"))
	}
	assert.Equal(t, strings.Repeat("é", 512), letters[0].GetAttributes()[inbox.FieldDeadLetterReason])
	assert.Equal(t, "\uFFFD", letters[1].GetAttributes()[inbox.FieldDeadLetterReason])
	for _, letter := range letters {
		assert.Len(t, letter.GetAttributes(), maxAttributes)
		assert.Equal(t, "m1", letter.GetAttributes()[inbox.FieldDeadLetterPosition])
		assert.NotContains(t, letter.GetAttributes(), inbox.FieldDeadLetterAttempts)
		assert.Equal(t, "k", letter.GetOrderingKey())
	}
	assert.Len(t, full, maxAttributes-2, "the message's own are not touched")
}

// All that is wrong is reported at once.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	_, err := NewConsumer(nil, "billing", nil, Config{})
	require.ErrorContains(t, err, "the client is nil")
	require.ErrorContains(t, err, "the handler is nil")
	client := newClient(t, "localhost:1")
	_, err = NewConsumer(client, "billing", inbox.NewHandlers(nil), Config{})
	require.ErrorContains(t, err, "the GORM handle is nil", "handlers that are wrong in themselves")
	_, err = NewConsumer(client, "billing-"+strings.Repeat("x", 200), newLedger(t, nil), Config{})
	require.ErrorContains(t, err, "has 208 characters: give it at most 200")
	_, err = NewConsumer(client, "no way", newLedger(t, nil),
		Config{ConsumerConfig: inbox.ConsumerConfig{Workers: -1, DeadLetters: inbox.Always("x")}, Lease: time.Second, MaxExtension: time.Millisecond})
	for _, part := range []string{
		`"projects/acme/subscriptions/no way" is no subscription`, "Workers is -1", "Lease is 1s", "MaxExtension is 1ms", `DeadLetters: "projects/acme/topics/x"`,
	} {
		require.ErrorContains(t, err, part)
	}
	c, err := NewConsumer(client, "projects/other/subscriptions/billing", newLedger(t, nil),
		Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always(dead)}})
	require.NoError(t, err)
	assert.Equal(t, "projects/other/subscriptions/billing", c.subscription)
	assert.Equal(t, dead, c.letters)
	assert.Equal(t, "billing", c.config.Consumer)
}

// What a foreign sender puts into attributes takes room, too, and so do many that are empty.
func TestAttributesTakeRoom(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	attributes := map[string]string{}
	for n := range 90 {
		attributes[fmt.Sprint("a", n)] = ""
	}
	const messages, room = 8, 2
	for n := range messages {
		s.PublishOrdered(topic, payload(uuid.New(), "", n), attributes, "")
	}
	begun, free := make(chan struct{}, messages), make(chan struct{})
	c := hurried(t, newClient(t, s.Addr), inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		begun <- struct{}{}
		<-free
		return inbox.Handled, nil
	}), Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 100, MaxOutstandingBytes: (2*room + 1) * 90 * consumer.HeaderBytes / 2}})
	p := started(t, c)
	for range room {
		<-begun
	}
	eventually(t, func() bool { return c.running.Load().arrived.Load() == messages }, "all have arrived")
	assert.EqualValues(t, room, p.Stats().Claimed)
	close(free)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are done")
	require.NoError(t, p.stop())
}
