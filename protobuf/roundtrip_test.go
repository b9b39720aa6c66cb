package protobuf_test

import (
	"context"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/protobuf"
	"github.com/gorm-fanout/fanout/protobuf/internal/shop"
	"github.com/gorm-fanout/fanout/uow"
)

// Order is the aggregate of the tests.
type Order struct {
	ID      string
	Version int64
	uow.Aggregate
}

// Placed is an event in Go, whose contract is a message.
type Placed struct{ OrderID, Customer string }

func placed() *shop.OrderPlaced {
	return &shop.OrderPlaced{
		OrderId: "42", Customer: "Ada <ß☃>", TotalCents: 9_007_199_254_740_993, Status: shop.Status_STATUS_PLACED,
		Lines: []*shop.Line{{Sku: "a", Quantity: 2}, {}}, Note: proto.String(""), Labels: map[string]string{"b": "2", "a": "1", "c": ""},
		PlacedAt: timestamppb.New(time.Date(2026, 11, 27, 19, 30, 0, 123_456_000, time.UTC)), Payment: &shop.OrderPlaced_Voucher{Voucher: []byte{0, 255}},
	}
}

// The forms in which external brokers get messages.
const brokersOfAllForms = `
databases: {default: {driver: sqlite}}
outbox: {external_brokers: [native, events, native-json, events-json]}
brokers:
  default: {type: memory}
  native: {type: memory}
  events: {type: memory, format: cloudevents, extensions: [tenant_id]}
  native-json: {type: memory, encoding: json, extensions: [tenant_id]}
  events-json: {type: memory, format: cloudevents, encoding: json, extensions: [tenant_id]}
`

// service is an application with a relay, and a broker in memory for each name.
type service struct {
	db      *gorm.DB
	brokers map[string]*memory.Broker
}

func newService(t *testing.T, events *envelope.Catalog) *service {
	t.Helper()
	require.NoError(t, events.Err())
	cfg, err := config.Parse([]byte(brokersOfAllForms), "fanout.yaml")
	require.NoError(t, err)
	routing := cfg.Routing()
	s := &service{db: fanouttest.OpenConfig(t, fanouttest.Config{Routing: &routing}, events, &Order{}), brokers: map[string]*memory.Broker{}}
	options := []fanout.Option{fanout.WithLogger(slog.New(slog.DiscardHandler)), fanout.WithDB("default", s.db)}
	for _, name := range cfg.BrokerNames() {
		s.brokers[name] = memory.New()
		options = append(options, fanout.WithBroker(name, s.brokers[name]))
	}
	relay, err := fanout.Open(t.Context(), cfg, options...)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})
	return s
}

// delivery is a message as a consumer gets it.
func (s *service) delivery(t *testing.T, broker string) (payload []byte, attributes map[string]string) {
	t.Helper()
	messages, err := s.brokers[broker].Wait(t.Context(), "ordering::order", 1)
	require.NoError(t, err)
	return deliveryOf(&messages[0])
}

func deliveryOf(m *brokers.Message) (payload []byte, attributes map[string]string) {
	return m.Payload, maps.Collect(m.Fields)
}

// consumer is a service with an inbox, which handles both types.
type consumer struct {
	db       *gorm.DB
	handlers *inbox.Handlers
	got      []*shop.OrderPlaced
	as       []*inbox.Message
	tenants  []string
}

func newConsumer(t *testing.T, wireTypes ...string) *consumer {
	t.Helper()
	c := &consumer{db: fanouttest.Open(t, envelope.NewCatalog("billing"))}
	_, err := inbox.Migrate(t.Context(), c.db)
	require.NoError(t, err)
	c.handlers = inbox.NewHandlers(c.db, inbox.WithChecksums(), inbox.WithLogger(slog.New(slog.DiscardHandler)))
	for _, wireType := range wireTypes {
		protobuf.On(c.handlers, wireType, func(tx *gorm.DB, event *shop.OrderPlaced, m *inbox.Message) error {
			c.got, c.as = append(c.got, event), append(c.as, m)
			c.tenants = append(c.tenants, envelope.FromContext(tx.Statement.Context).TenantID)
			return nil
		})
	}
	return c
}

func (c *consumer) handle(t *testing.T, broker string, payload []byte, attributes map[string]string) inbox.Outcome {
	t.Helper()
	m, err := inbox.Decode(payload, attributes)
	require.NoError(t, err, "%s: %q %v", broker, payload, attributes)
	m.Consumer, m.Source = "billing", broker
	outcome, err := c.handlers.Handle(t.Context(), m)
	require.NoError(t, err)
	return outcome
}

// A message that is raised, and one that is made of a Go event, arrive as they were, on the way over the outbox, a relay and a
// broker, in each form, and once. What is written into a message after it was raised does not arrive.
func TestMessagesArriveInEachForm(t *testing.T) {
	t.Parallel()
	sent := placed()
	for name, register := range map[string]func(events *envelope.Catalog) any{
		"an event": func(events *envelope.Catalog) any {
			protobuf.Register[*shop.OrderPlaced](events, envelope.Published())
			return placed()
		},
		"a contract": func(events *envelope.Catalog) any {
			envelope.Register[Placed](events, envelope.Name("OrderPlaced"), envelope.Published(
				protobuf.As(func(Placed) *shop.OrderPlaced { return placed() })))
			return Placed{"42", "Ada"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := envelope.NewCatalog("ordering")
			event := register(events)
			s := newService(t, events)
			ctx := envelope.WithTenantID(envelope.WithCausationID(envelope.WithCorrelationID(t.Context(), "correlation"), "cause"), "acme")
			require.NoError(t, s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				order := &Order{ID: "42"}
				order.Raise(event)
				if m, ok := event.(*shop.OrderPlaced); ok {
					m.Customer, m.Labels["late"] = "Mallory", "yes"
				}
				return tx.Create(order).Error
			}))

			c := newConsumer(t, "Ordering.OrderPlaced.v1")
			ids := map[string]bool{}
			forms := []string{"native", "events", "native-json", "events-json", "default"}
			if name == "a contract" { // inside it is the Go event
				forms = forms[:4]
			}
			for i, form := range forms {
				payload, attributes := s.delivery(t, form)
				require.Equal(t, inbox.Handled, c.handle(t, form, payload, attributes), form)
				assert.Equal(t, inbox.Duplicate, c.handle(t, form, payload, attributes), form)
				protoEqual(t, sent, c.got[i])
				m := c.as[i]
				ids[m.ID] = true
				assert.Equal(t, "Ordering.OrderPlaced.v1", m.Type, form)
				assert.Equal(t, "ordering::order-42", m.OrderingKey, form)
				metadata := m.Envelope.Metadata
				assert.Equal(t, m.Key, metadata.Headers.ID, form)
				assert.Equal(t, "correlation", metadata.Domain.CorrelationID, form)
				assert.Equal(t, "cause", metadata.Domain.CausationID, form)
				assert.Equal(t, c.as[0].Envelope.Metadata.Headers.Time, metadata.Headers.Time, form)
				assert.False(t, metadata.Headers.Time.IsZero(), form)
				assert.Equal(t, c.as[0].Envelope.Metadata.Domain.SequenceID, metadata.Domain.SequenceID, form)
				if form != "native" { // which has no extensions
					assert.Equal(t, "acme", c.tenants[i], form)
				}
			}
			assert.Len(t, ids, 1)
		})
	}
}

// A dead letter keeps the payload and the flat fields, and is handled from them when it is redriven.
func TestDeadLettersAreRedelivered(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("ordering")
	protobuf.Register[*shop.OrderPlaced](events, envelope.Published())
	s := newService(t, events)
	require.NoError(t, s.db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42"}
		order.Raise(placed())
		return tx.Create(order).Error
	}))
	c := newConsumer(t)
	fails := true
	protobuf.On(c.handlers, "Ordering.OrderPlaced.v1", func(_ *gorm.DB, event *shop.OrderPlaced, _ *inbox.Message) error {
		if fails {
			return inbox.Permanent(assert.AnError)
		}
		c.got = append(c.got, event)
		return nil
	})
	payload, attributes := s.delivery(t, "native")
	require.Equal(t, inbox.DeadLettered, c.handle(t, "native", payload, attributes))
	fails = false
	letters, err := inbox.DeadLetters(t.Context(), c.db, inbox.DeadLetterFilter{Consumer: "billing"})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	assert.Equal(t, payload, letters[0].Payload)
	redriven, err := inbox.RedriveAll(t.Context(), c.db, "billing", "")
	require.NoError(t, err)
	assert.EqualValues(t, 1, redriven)
	n, err := inbox.Redeliver(t.Context(), c.db, "billing", c.handlers)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	protoEqual(t, placed(), c.got[0])
}

func protoEqual(t *testing.T, want, got proto.Message) {
	t.Helper()
	if !proto.Equal(want, got) {
		assert.Equal(t, protojson.Format(want), protojson.Format(got))
		assert.Fail(t, "the messages differ")
	}
}
