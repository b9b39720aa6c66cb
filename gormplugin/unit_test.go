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

func TestUnitOnOneConnection(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		late := func(tx *gorm.DB, id string) error {
			order := &Order{ID: id}
			err := tx.Create(order).Error
			order.Raise(OrderShipped{id})
			return err
		}
		require.NoError(b.t, b.db.Connection(func(conn *gorm.DB) error {
			require.NoError(b.t, uow.Do(b.t.Context(), conn, func(u *uow.Unit) error { return late(u.DB, "1") }))
			wrapped, err := gormplugin.Wrap(conn)
			require.NoError(b.t, err)
			return wrapped.Transaction(func(tx *gorm.DB) error { return late(tx, "2") })
		}))
		b.want("OrderShipped 1", "OrderShipped 2")

		db := b.open(&gorm.Config{})
		prepared := db.Session(&gorm.Session{PrepareStmt: true})
		b.use(db)
		require.NoError(b.t, uow.Do(b.t.Context(), prepared, func(u *uow.Unit) error { return late(u.DB, "3") }))
		b.want("OrderShipped 1", "OrderShipped 2", "OrderShipped 3")
		require.NoError(b.t, prepared.Transaction(func(tx *gorm.DB) error { return tx.Create(placed("4")).Error }))
		assert.Len(b.t, b.rows(), 5)
		assert.Contains(b.t, b.log.String(), "a pool that the plugin has not seen")
		assert.Same(b.t, b.db, must(gormplugin.Wrap(b.db)), "nothing to do")
	})
}

func TestTransactionOfTheCallersOwn(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		sqlDB, err := b.db.DB()
		require.NoError(b.t, err)
		own, err := sqlDB.BeginTx(b.t.Context(), nil)
		require.NoError(b.t, err)
		db := b.db.Session(&gorm.Session{NewDB: true, Context: b.t.Context()})
		db.Statement.ConnPool = own
		order := placed("1")
		require.NoError(b.t, db.Create(order).Error)
		order.Raise(OrderShipped{"1"})
		require.NoError(b.t, uow.Track(db, order), "the way to write a late event")
		_, err = gormplugin.Preview(db)
		require.ErrorIs(b.t, err, uow.ErrNoTransaction)
		var woken []wakeup.WakeUp
		onCommit(b.db, func(wakeUps []wakeup.WakeUp) bool { woken = append(woken, wakeUps...); return true })
		require.NoError(b.t, own.Commit())
		order.Raise(OrderShipped{"not written yet"})
		require.NoError(b.t, gormplugin.Notify(b.db, order))
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
			require.NoError(b.t, tx.Create(placed("1")).Error)
			captured, err := gormplugin.Preview(tx)
			require.NoError(b.t, err)
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
		require.NoError(b.t, b.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			require.NoError(b.t, tx.Create(placed("1")).Error)
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
			require.NoError(b.t, err)
			require.NoError(b.t, tx.Create(order).Error)
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
		require.NoError(b.t, b.db.Callback().Create().Before("gorm:before_create").Register("tracing", func(db *gorm.DB) {
			db.Statement.Context = trace.ContextWithSpanContext(db.Statement.Context, span(9))
		}))
		order := placed("1")
		order.Lines = []Line{{SKU: "x"}}
		order.Lines[0].Raise(OrderShipped{"x"})
		require.NoError(b.t, b.db.WithContext(trace.ContextWithSpanContext(b.t.Context(), span(7))).Create(order).Error)
		for _, r := range b.rows() {
			if r.TargetBroker == "default" {
				parent := internalOf(b.t, r)["metadata"].(map[string]any)["headers"].(map[string]any)["traceparent"].(map[string]any)
				assert.Equal(b.t, "0700000000000000", parent["parent_id"])
			}
		}
	})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func idsOf(order *Order) []string {
	recorder, _ := journal.RecorderOf(reflect.ValueOf(order).Elem())
	var ids []string
	for _, event := range recorder.Events() {
		ids = append(ids, event.ID.String())
	}
	return ids
}

func TestPreviewOfAStrictPlugin(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.goesBack(b.db, func(tx *gorm.DB) {
			require.NoError(b.t, tx.Model(placed("1")).Where("status = ?", "other").Updates(map[string]any{"status": "x"}).Error)
			_, err := gormplugin.Preview(tx)
			require.ErrorAs(b.t, err, new(*gormplugin.PendingError))
		})
	}, gormplugin.WithStrict())
}
