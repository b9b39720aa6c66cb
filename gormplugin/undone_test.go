package gormplugin_test

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/uow"
)

// try is a transaction in which an aggregate raises something, is saved, and which then fails.
func (b *bench) try(o *Order, what ...string) {
	b.t.Helper()
	b.goesBack(b.db, func(tx *gorm.DB) { b.ok(tx.Save(raising(o, what...)).Error) })
}

// What becomes of events that were raised in work which was rolled back.
func TestUndone(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a loop around a transaction sends one event, with the id of the first try": func(b *bench) {
			o, tries := order("1"), 0
			for range 3 {
				err := b.db.Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Save(raising(o, "paid")).Error)
					if tries++; tries < 3 {
						return errRefused
					}
					return nil
				})
				require.Equal(b.t, tries == 3, err == nil)
				if tries == 1 {
					defer func(id string) { require.Equal(b.t, id, b.rows()[0].MessageID) }(idOf(o))
				}
			}
			b.want("1: paid")
			b.pending(o)
			assert.Equal(b.t, 1, strings.Count(b.log.String(), "event raised again after a rollback: sent once"))
		},
		"discarded": func(b *bench) {
			o, other := order("1"), order("2", "kept")
			b.try(o, "paid")
			uow.Discard(o)
			b.pending(o)
			b.ok(b.db.Create([]*Order{o, other}).Error)
			b.want("2: kept")
			uow.Discard(&Pointed{ID: "raised nothing"})
		},
		"events of a repeated transaction are counted from one": func(b *bench) {
			account := &Account{Bank: "b", Number: 1, Version: 1}
			b.goesBack(b.db, func(tx *gorm.DB) { b.ok(tx.Create(raising(account, "a", "b")).Error) })
			b.ok(b.db.Transaction(func(tx *gorm.DB) error { return tx.Create(raising(account, "b", "c")).Error }))
			b.want("b,1: b", "b,1: c")
			assert.Equal(b.t, []any{"1.1", "1.2"}, b.sequences())
		},
	})
}

// A savepoint costs the same whatever the transaction has done before.
func TestSavepointsCostNoMoreTheMoreThereAre(t *testing.T) { // not parallel: other tests would be counted too
	at := startSQLite(t)(t)
	run(t, at, func(b *bench) {
		allocated := func(n int) float64 {
			orders := make([]*Order, n)
			for i := range orders {
				orders[i] = order("nobody's " + strconv.Itoa(i))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				for _, o := range orders {
					b.ok(tx.Transaction(func(tx *gorm.DB) error { return tx.Model(o).UpdateColumn("status", "x").Error }))
				}
				return nil
			}))
			runtime.ReadMemStats(&after)
			return float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
		}
		allocated(10)
		few, many := allocated(250), allocated(2000)
		require.InEpsilon(b.t, few, many, 0.2, "bytes for each nested transaction")
	}, nil)
}

// What is emitted is what the attempt raised that committed.
func TestRetryEmitsWhatTheLastAttemptRaised(t *testing.T) {
	t.Parallel()
	type attempt func(b *bench, tx *gorm.DB, o *Order) error
	saves := func(_ *bench, tx *gorm.DB, o *Order) error { return tx.Save(o).Error }
	for name, c := range map[string]struct {
		first, second attempt
		want          []string
	}{
		"the first fails before any statement": {
			first: func(_ *bench, _ *gorm.DB, o *Order) error { raising(o, "paid"); return nil },
			second: func(b *bench, tx *gorm.DB, o *Order) error {
				o.Raise(OrderShipped{"1"})
				return saves(b, tx, o)
			},
			want: []string{"OrderShipped 1"},
		},
		"the second raises nothing": {
			first:  func(_ *bench, _ *gorm.DB, o *Order) error { raising(o, "paid"); return nil },
			second: saves,
		},
		"the second raises after its save": {
			first: func(_ *bench, _ *gorm.DB, o *Order) error { raising(o, "a", "b"); return nil },
			second: func(b *bench, tx *gorm.DB, o *Order) error {
				err := saves(b, tx, o)
				raising(o, "b")
				return err
			},
			want: []string{"1: b"},
		},
		"the first fails after its save": {
			first:  func(b *bench, tx *gorm.DB, o *Order) error { return saves(b, tx, raising(o, "paid")) },
			second: saves,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(b *bench) {
				o, n := order("1"), 0
				b.ok(uow.Do(context.Background(), b.db, func(u *uow.Unit) error {
					if n++; n == 1 {
						b.ok(c.first(b, u.DB, o))
						return conflict("40001")
					}
					return c.second(b, u.DB, o)
				}, uow.WithRetry(3)))
				b.want(c.want...)
				b.pending(o)
			})
		})
	}
}
