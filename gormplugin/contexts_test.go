package gormplugin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What the context of a statement carries, and what an event itself says, reaches the row.
func TestContexts(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"everything that a context carries": func(b *bench) {
			ctx := envelope.WithCorrelationID(b.t.Context(), "corr")
			ctx = envelope.WithCausationID(ctx, "cause")
			ctx = envelope.WithTenantID(ctx, "tenant")
			ctx = envelope.WithActor(ctx, "ada")
			ctx = envelope.WithIdempotencyKey(ctx, "key")
			ctx = envelope.WithOriginStream(ctx, "origin")
			ctx = envelope.WithPriority(ctx, 50)
			ctx = envelope.WithExtension(ctx, "region", "north")
			ctx = envelope.WithTrace(ctx, traceParent, "a=b")
			b.ok(b.db.WithContext(ctx).Create(order("1", "a")).Error)
			b.want("1: a")
			r := b.rows()[0]
			assert.Equal(b.t, []string{"corr", "cause", "tenant"}, []string{*r.CorrelationID, *r.CausationID, *r.TenantID})
			assert.Equal(b.t, 50, r.Priority)
			assert.JSONEq(b.t, `{"traceparent":"`+traceParent+`","tracestate":"a=b"}`, *r.Headers)
			metadata := part(internalOf(b.t, r), "metadata")
			assert.Equal(b.t, map[string]any{"tenant_id": "tenant", "actor": "ada", "region": "north"}, metadata["extensions"])
			assert.Equal(b.t, "key", part(metadata, "headers")["idempotency_key"])
			assert.Equal(b.t, "origin", part(metadata, "domain")["origin_stream"])
		},
		"the context reaches children and hooks": func(b *bench) {
			ctx := envelope.WithCorrelationID(b.t.Context(), "corr")
			b.ok(b.db.WithContext(ctx).Create(&Buyer{ID: "b", Card: raising(&Card{ID: "c"}, "child")}).Error)
			b.ok(b.db.WithContext(ctx).Create(hooked("h", "AfterSave", func(_ *Hooked, tx *gorm.DB) error {
				return uow.Publish(tx, Happened{"hook"})
			})).Error)
			b.want("c: child", ": hook")
			for _, r := range b.rows() {
				assert.Equal(b.t, "corr", *r.CorrelationID)
			}
		},
		"an event's own options": func(b *bench) {
			o := order("1")
			o.Raise(Happened{"a"}, envelope.Priority(100), envelope.TTL(time.Hour), envelope.Extension("region", "north"),
				envelope.Key(func(Happened) string { return "own key" }),
				envelope.NotBefore(func(Happened) time.Time { return time.Now().Add(time.Hour) }))
			b.ok(b.db.WithContext(envelope.WithPriority(b.t.Context(), 50)).Create(o).Error)
			b.want("1: a")
			r := b.rows()[0]
			assert.Equal(b.t, 100, r.Priority)
			assert.Equal(b.t, "own key", *r.OrderingKey)
			assert.True(b.t, r.Held)
			assert.True(b.t, r.Expires)
			assert.Equal(b.t, "north", part(internalOf(b.t, r), "metadata", "extensions")["region"])
		},
		"a function of an option that panics": func(b *bench) {
			o := order("1")
			o.Raise(Happened{"a"}, envelope.Key(func(Happened) string { panic("boom") }))
			require.ErrorContains(b.t, b.db.Create(o).Error, "boom")
			b.settled()
			b.want()
			assert.Zero(b.t, b.orders())
			b.pending(o, "a")
		},
	})
}

// Where events go is settled when they are captured.
func TestRouting(t *testing.T) {
	t.Parallel()
	// routed gives a handle with two external brokers, the second of which takes some types only.
	routed := func(b *bench, types ...string) *gorm.DB {
		db := b.open(&gorm.Config{})
		b.ok(db.Use(gormplugin.New(catalog(), outbox.Routing{Table: b.at.outbox(), InternalBroker: "inside", External: []outbox.Route{
			{Broker: "all", Format: envelope.FormatCloudEvents}, {Broker: "some", Types: types},
		}})))
		return db
	}
	runCases(t, map[string]func(b *bench){
		"brokers with formats of their own": func(b *bench) {
			b.ok(routed(b).Create(placed("1")).Error)
			b.want("OrderPlaced 1>inside", "OrderPlaced 1>all", "OrderPlaced 1>some")
			assert.Contains(b.t, string(b.rows()[1].Payload), `"specversion":"1.0"`)
		},
		"an event that names its brokers": func(b *bench) {
			o := order("1")
			o.Raise(OrderPlaced{"1"}, envelope.To("some"))
			b.ok(routed(b).Create(o).Error)
			b.want("OrderPlaced 1>inside", "OrderPlaced 1>some")
		},
	})
}
