package envelope_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

// OrderPlaced is a published event of an aggregate.
type OrderPlaced struct {
	OrderID  string  `json:"order_id"`
	Customer string  `json:"customer"`
	Total    float64 `json:"total"`
	Note     string  `json:"note,omitempty"`
}

// StockReserved is a published event without an aggregate.
type StockReserved struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// OrderAudited stays inside.
type OrderAudited struct{ By string }

// Changed is a generic event.
type Changed[T any] struct{ Before, After T }

var (
	fixedID   = uuid.MustParse("0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b")
	fixedTime = time.Date(2026, 3, 1, 12, 30, 45, 120_000_000, time.UTC) // its fraction ends in zeros
	order42   = envelope.Source{Aggregate: "Order", ID: "42", Version: 7, Sequence: 1}
)

func newCatalog(t testing.TB) *envelope.Catalog {
	t.Helper()
	c := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](c, envelope.Published())
	envelope.Register[StockReserved](c, envelope.Published(), envelope.Version(2))
	envelope.Register[OrderAudited](c)
	require.NoError(t, c.Err())
	return c
}

func placed(opts ...envelope.Option) envelope.Event {
	return fixedEvent(OrderPlaced{OrderID: "42", Customer: "<Ada & Söhne>", Total: 12.5}, opts...)
}

func fixedEvent(data any, opts ...envelope.Option) envelope.Event {
	return envelope.Event{ID: fixedID, Time: fixedTime, Data: data, Options: opts}
}

func seal(t testing.TB, c *envelope.Catalog, ev envelope.Event, src envelope.Source, cx envelope.Context) *envelope.Message {
	t.Helper()
	m, err := c.Seal(ev, src, cx)
	require.NoError(t, err)
	return m
}

// fullContext sets whatever a request can know.
func fullContext() envelope.Context {
	ctx := envelope.WithCorrelationID(context.Background(), "checkout-9")
	ctx = envelope.WithCausationID(ctx, "0197f0a2-0000-7000-8000-000000000001")
	ctx = envelope.WithTenantID(ctx, "acme")
	ctx = envelope.WithActor(ctx, "ada")
	ctx = envelope.WithIdempotencyKey(ctx, "key-1")
	ctx = envelope.WithOriginStream(ctx, "basket::basket-7")
	ctx = envelope.WithPriority(ctx, envelope.PriorityHigh)
	ctx = envelope.WithExtension(ctx, "region", "eu")
	ctx = envelope.WithTrace(ctx, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=a:1")
	return envelope.FromContext(ctx)
}

func ptr[T any](v T) *T { return &v }

// every names all extensions of a message, as a broker would that is to get them all.
func every(m *envelope.Message) []string { return slices.Sorted(maps.Keys(m.Metadata.Extensions)) }

// everything is what brokers can list, but for empty members.
var everything = envelope.Include{FQN: true, OriginStream: true, IdempotencyKey: true, TraceState: true}

// marshalWhole returns the external form with all that can leave.
func marshalWhole(m *envelope.Message) ([]byte, error) {
	caused := *m
	caused.Routing.CausePublished = true
	return caused.MarshalExternal(everything, every(m)...)
}
