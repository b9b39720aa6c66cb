package gormplugin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// conflict is an error as PostgreSQL's driver reports it.
type conflict string

func (c conflict) Error() string    { return "conflict " + string(c) }
func (c conflict) SQLState() string { return string(c) }

// A unit that is repeated writes each message once, with the id it had at first, wherever the
// conflict strikes.
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
			}, uow.WithRetry(3)))
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
		}, uow.WithRetry(2))
		require.ErrorContains(b.t, err, "given up after 2 attempts")
		assert.Equal(b.t, 2, attempts)
		assert.Len(b.t, uow.Pending(order), 1, "one event, although it was raised twice")
		b.want()

		attempts = 0
		require.ErrorIs(b.t, uow.Do(b.t.Context(), b.db, func(*uow.Unit) error { attempts++; return errRefused }, uow.WithRetry(5)), errRefused)
		assert.Equal(b.t, 1, attempts, "an error of another kind is not repeated")

		require.NoError(b.t, uow.Do(b.t.Context(), b.db, func(*uow.Unit) error {
			if attempts++; attempts < 4 {
				return errRefused
			}
			return nil
		}, uow.WithRetry(5), uow.WithRetryIf(func(err error) bool { return errors.Is(err, errRefused) })))
		assert.Equal(b.t, 4, attempts)

		ctx, cancel := context.WithCancel(b.t.Context())
		err = uow.Do(ctx, b.db, func(*uow.Unit) error { cancel(); return conflict("40001") }, uow.WithRetry(5))
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
			}, uow.WithRetry(3))
		}, uow.WithRetry(3)))
		assert.Equal(b.t, 2, outer)
		assert.Equal(b.t, 2, inner)
		b.want("OrderPlaced 1", "OrderPlaced 1>partner")
	})
}

// Two transactions that both read before they write cannot both be serializable: the real database
// says so.
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
		}, uow.WithRetry(3), uow.WithTxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable})))
		assert.Equal(b.t, 2, attempts)
		b.want("OrderPlaced 1", "OrderPlaced 1>partner")
	})
}
