package gormplugin_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

func TestTransactionOfTheCallersOwn(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		own, db := b.own()
		order := placed("1")
		b.ok(db.Create(order).Error)
		order.Raise(OrderShipped{"1"})
		b.ok(uow.Track(db, order)) // the way to write a late event
		_, err := gormplugin.Preview(db)
		require.ErrorIs(b.t, err, uow.ErrNoTransaction)
		var woken []wakeup.WakeUp
		onCommit(b.db, func(wakeUps []wakeup.WakeUp) bool { woken = append(woken, wakeUps...); return true })
		b.ok(own.Commit())
		order.Raise(OrderShipped{"not written yet"})
		b.ok(gormplugin.Notify(b.db, order))
		assert.Equal(b.t, []wakeup.WakeUp{{Broker: "default"}, {Broker: "partner"}}, woken, "in shards that are not known")
		assert.Equal(b.t, []any{OrderShipped{"not written yet"}}, uow.Pending(order))
		b.want("OrderPlaced 1", "OrderPlaced 1>partner", "OrderShipped 1")
		require.ErrorIs(b.t, gormplugin.Notify(b.open(&gorm.Config{})), uow.ErrNoPlugin)
		require.ErrorIs(b.t, uow.Track(b.db, order), uow.ErrNoTransaction)
	})
}

func TestPreview(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.goesBack(b.db, func(tx *gorm.DB) {
			b.ok(tx.Create(placed("1")).Error)
			captured, err := gormplugin.Preview(tx)
			b.ok(err)
			require.Len(b.t, captured, 1)
			assert.Equal(b.t, OrderPlaced{"1"}, captured[0].Data)
			assert.Equal(b.t, "Order", captured[0].Source.Aggregate)
			assert.Len(b.t, captured[0].Rows, 2)
		})
		_, err := gormplugin.Preview(b.db)
		require.ErrorIs(b.t, err, uow.ErrNoTransaction)
	})
}

type tenantKey struct{}

func TestEnrich(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		ctx := context.WithValue(b.t.Context(), tenantKey{}, "acme")
		b.ok(b.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(placed("1")).Error)
			return uow.Publish(tx, StockReserved{"x"})
		}))
		for _, r := range b.rows() {
			assert.Equal(b.t, "acme", *r.CorrelationID)
		}
	}, gormplugin.WithEnricher(func(ctx context.Context) context.Context {
		tenant, _ := ctx.Value(tenantKey{}).(string)
		return envelope.WithTenantID(ctx, tenant)
	}), gormplugin.WithEnricher(func(ctx context.Context) context.Context {
		return envelope.WithCorrelationID(ctx, envelope.FromContext(ctx).TenantID)
	}))
}

// A savepoint that was set behind GORM's back: what a rollback to it undid is not known, and
// guessing would lose events.
func TestSavepointBehindGORMsBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		if b.dialect == outbox.SQLServer {
			b.t.Skip("the statements are those of PostgreSQL and SQLite")
		}
		order := placed("1")
		err := b.db.Transaction(func(tx *gorm.DB) error {
			sqlTx, _ := gormplugin.SQLTx(tx)
			_, err := sqlTx.ExecContext(b.t.Context(), "SAVEPOINT hidden")
			b.ok(err)
			b.ok(tx.Create(order).Error)
			return tx.RollbackTo("hidden").Error
		})
		var lost *uow.SavepointError
		require.ErrorAs(b.t, err, &lost)
		assert.Equal(b.t, "hidden", lost.Name)
		assert.Len(b.t, uow.Pending(order), 1)
		b.want()
	})
}

// A chunk may end amid the rows of an event. All of them are written, in order.
func TestChunksThatEndAmidAnEvent(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		o := order("1", "first") // one row, so that all others begin at odd places
		want := []string{"1: first"}
		for range 1250 {
			o.Raise(OrderPlaced{"1"})
			want = append(want, "OrderPlaced 1", "OrderPlaced 1>partner")
		}
		b.ok(b.db.Create(raising(o, "last")).Error)
		b.want(append(want, "1: last")...)
		assert.Empty(b.t, uow.Pending(o))
	})
}

// The application's span is the parent, whatever spans callbacks open for the statement.
func TestSpanOfTheApplication(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		span := func(id byte) trace.SpanContext {
			return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{id}, TraceFlags: trace.FlagsSampled})
		}
		b.ok(b.db.Callback().Create().Before("gorm:before_create").Register("tracing", func(db *gorm.DB) {
			db.Statement.Context = trace.ContextWithSpanContext(db.Statement.Context, span(9))
		}))
		order := placed("1")
		order.Lines = []Line{{SKU: "x"}}
		order.Lines[0].Raise(OrderShipped{"x"})
		b.ok(b.db.WithContext(trace.ContextWithSpanContext(b.t.Context(), span(7))).Create(order).Error)
		for _, r := range b.rows() {
			if r.TargetBroker == "default" {
				parent := internalOf(b.t, r)["metadata"].(map[string]any)["headers"].(map[string]any)["traceparent"].(map[string]any)
				assert.Equal(b.t, "0700000000000000", parent["parent_id"])
			}
		}
	})
}

func idsOf(order *Order) []string {
	recorder, _ := journal.RecorderOf(reflect.ValueOf(order).Elem())
	var ids []string
	for _, event := range recorder.Events() {
		ids = append(ids, event.ID.String())
	}
	return ids
}
