package gormplugin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// conflict is an error as PostgreSQL's driver reports it.
type conflict string

func (c conflict) Error() string    { return "conflict " + string(c) }
func (c conflict) SQLState() string { return string(c) }

// A unit that is repeated writes each message once, with the id it had at first, wherever the conflict strikes.
func TestRetryRaisesTheSameMessages(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		for _, strike := range []string{"before the aggregate is touched", "after its save", "at the end"} {
			order := placed(strike) // what was raised before the unit is not taken back
			raised := idsOf(order)
			attempts := 0
			require.NoError(b.t, uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				attempts++
				fail := func(at string) error {
					if at == strike && attempts < 3 {
						return fmt.Errorf("wrapped: %w", conflict("40001"))
					}
					return nil
				}
				if err := u.Publish(StockReserved{strike}); err != nil {
					return err
				}
				order.Raise(OrderShipped{strike})
				order.Raise(OrderPlaced{"again"})
				if attempts == 1 {
					raised = append(raised, idsOf(order)[1:]...)
				}
				if err := fail("before the aggregate is touched"); err != nil {
					return err
				}
				if err := u.DB.WithContext(context.Background()).Save(order).Error; err != nil { // a context that knows nothing of the unit
					return err
				}
				return errors.Join(fail("after its save"), fail("at the end"))
			}, uow.Retry(3)))
			assert.Equal(b.t, 3, attempts)
			assert.Empty(b.t, uow.Pending(order))
			var ids, names []string
			for _, r := range b.rows() {
				if r.TargetBroker == "default" {
					if r.AggregateID != nil && *r.AggregateID == strike {
						ids = append(ids, r.MessageID)
					}
					names = append(names, r.Type)
				}
			}
			assert.Equal(b.t, raised, ids)
			assert.Equal(b.t, []string{"Ordering.OrderPlaced.v1", "Ordering.StockReserved.v1", "Ordering.OrderShipped.v1", "Ordering.OrderPlaced.v1"}, names)
			require.NoError(b.t, b.db.Exec("DELETE FROM "+b.at.outbox()).Error)
		}
	})
}

func TestRetryGivesUp(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		order := &Order{ID: "1"}
		attempts := 0
		err := uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
			attempts++
			order.Raise(OrderShipped{"1"})
			return errors.Join(u.DB.Create(order).Error, conflict("40P01"))
		}, uow.Retry(2))
		require.ErrorContains(b.t, err, "given up after 2 attempts")
		assert.Equal(b.t, 2, attempts)
		assert.Len(b.t, uow.Pending(order), 1, "one event, although it was raised twice")
		b.want()

		attempts = 0
		require.ErrorIs(b.t, uow.Do(b.t.Context(), b.db, func(*uow.Unit) error { attempts++; return errRefused }, uow.Retry(5)), errRefused)
		assert.Equal(b.t, 1, attempts, "an error of another kind is not repeated")

		require.NoError(b.t, uow.Do(b.t.Context(), b.db, func(*uow.Unit) error {
			if attempts++; attempts < 4 {
				return errRefused
			}
			return nil
		}, uow.Retry(5), uow.RetryIf(func(err error) bool { return errors.Is(err, errRefused) })))
		assert.Equal(b.t, 4, attempts)

		ctx, cancel := context.WithCancel(b.t.Context())
		err = uow.Do(ctx, b.db, func(*uow.Unit) error { cancel(); return conflict("40001") }, uow.Retry(5))
		require.ErrorIs(b.t, err, context.Canceled)
		require.ErrorIs(b.t, err, conflict("40001"))
	})
}

// Within a transaction there is nothing to repeat: the database has undone all of it.
func TestOnlyTheOutermostUnitIsRepeated(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		outer, inner := 0, 0
		require.NoError(b.t, uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
			outer++
			return uow.Do(b.t.Context(), u.DB, func(u *uow.Unit) error {
				if inner++; inner == 1 {
					return conflict("40001")
				}
				return u.DB.Create(placed("1")).Error
			}, uow.Retry(3))
		}, uow.Retry(3)))
		assert.Equal(b.t, 2, outer)
		assert.Equal(b.t, 2, inner)
		b.want("OrderPlaced 1", "OrderPlaced 1>partner")
	})
}

// Two transactions that both read before they write cannot both be serializable: the real database says so.
func TestRetryAgainstARealConflict(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		if b.dialect != outbox.Postgres {
			b.t.Skip("the conflict is built for PostgreSQL's serializable snapshots")
		}
		require.NoError(b.t, b.db.Create(&[]Plain{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}).Error)
		attempts := 0
		require.NoError(b.t, uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
			attempts++
			var plains []Plain
			require.NoError(b.t, u.DB.Find(&plains).Error)
			if attempts == 1 { // another transaction, in the middle
				require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
					require.NoError(b.t, tx.Find(&plains).Error)
					return tx.Model(&Plain{ID: 2}).Update("name", plains[0].Name).Error
				}, &sql.TxOptions{Isolation: sql.LevelSerializable}))
			}
			order := placed("1")
			if err := u.DB.Create(order).Error; err != nil {
				return err
			}
			return u.DB.Model(&Plain{ID: 1}).Update("name", plains[1].Name).Error
		}, uow.Retry(3), uow.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable})))
		assert.Equal(b.t, 2, attempts)
		b.want("OrderPlaced 1", "OrderPlaced 1>partner")
	})
}

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
		var woken []string
		b.plugin.OnCommit(func(brokers []string) { woken = append(woken, brokers...) })
		require.NoError(b.t, own.Commit())
		order.Raise(OrderShipped{"not written yet"})
		require.NoError(b.t, gormplugin.Notify(b.db, order))
		assert.Equal(b.t, []string{"default", "partner"}, woken)
		assert.Equal(b.t, []any{OrderShipped{"not written yet"}}, uow.Pending(order))
		b.want("OrderPlaced 1", "OrderPlaced 1>partner", "OrderShipped 1")
		require.ErrorIs(b.t, gormplugin.Notify(b.open(&gorm.Config{})), uow.ErrNoPlugin)
		require.ErrorIs(b.t, uow.Track(b.db, order), uow.ErrNoTransaction)
	})
}

func TestPreview(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			require.NoError(b.t, tx.Create(placed("1")).Error)
			captured, err := gormplugin.Preview(tx)
			require.NoError(b.t, err)
			require.Len(b.t, captured, 1)
			assert.Equal(b.t, OrderPlaced{"1"}, captured[0].Data)
			assert.Equal(b.t, "Order", captured[0].Source.Aggregate)
			assert.Len(b.t, captured[0].Rows, 2)
			return errRefused
		}), errRefused)
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
	}, gormplugin.Enrich(func(ctx context.Context) context.Context {
		tenant, _ := ctx.Value(tenantKey{}).(string)
		return envelope.WithTenantID(ctx, tenant)
	}), gormplugin.Enrich(func(ctx context.Context) context.Context {
		return envelope.WithCorrelationID(ctx, envelope.FromContext(ctx).TenantID)
	}))
}

// A savepoint that was set behind GORM's back: what a rollback to it undid is not known, and guessing would lose events.
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

// 2,500 events go in chunks, each chunk encoded when its turn comes.
func TestManyEventsInOneTransaction(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		order := &Order{ID: "1"}
		for i := range 1250 {
			order.Raise(OrderPlaced{fmt.Sprint(i)})
		}
		require.NoError(b.t, b.db.Create(order).Error)
		rows := b.rows()
		require.Len(b.t, rows, 2500)
		for i := range 1250 {
			assert.Contains(b.t, string(rows[2*i].Payload), fmt.Sprintf(`"order_id":"%d"`, i))
			assert.Equal(b.t, rows[2*i].MessageID, rows[2*i+1].MessageID)
		}
		assert.Empty(b.t, uow.Pending(order))
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
	recorder, _ := uow.RecorderOf(reflect.ValueOf(order).Elem())
	var ids []string
	for _, event := range recorder.Events() {
		ids = append(ids, event.ID.String())
	}
	return ids
}

func TestPreviewOfAStrictPlugin(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		require.ErrorIs(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			require.NoError(b.t, tx.Model(placed("1")).Where("status = ?", "other").Updates(map[string]any{"status": "x"}).Error)
			_, err := gormplugin.Preview(tx)
			var left *gormplugin.PendingError
			require.ErrorAs(b.t, err, &left)
			return errRefused
		}), errRefused)
	}, gormplugin.Strict())
}
