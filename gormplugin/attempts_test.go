package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/uow"
)

// Which messages a repeated unit of work writes, where its attempts differ.
func TestAttempts(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"an attempt commits a transaction beside its own": func(b *bench) {
			attempts := 0
			b.ok(uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
				b.ok(b.db.WithContext(u.DB.Statement.Context).Transaction(func(tx *gorm.DB) error {
					return uow.Publish(tx, Happened{"audited"})
				}))
				if attempts++; attempts == 1 {
					return conflict("40001")
				}
				return nil
			}, uow.WithRetry(3)))
			b.want(": audited", ": audited")
			rows := b.rows()
			require.NotEqual(b.t, rows[0].MessageID, rows[1].MessageID)
		},
		"an attempt panics": func(b *bench) {
			o, attempts, id := order("1"), 0, ""
			require.PanicsWithValue(b.t, "boom", func() {
				_ = uow.Do(b.t.Context(), b.db, func(u *uow.Unit) error {
					if attempts++; attempts == 2 {
						panic("boom")
					}
					b.ok(u.DB.Save(raising(o, "a")).Error)
					id = idOf(o)
					return conflict("40001")
				}, uow.WithRetry(3))
			})
			b.pending(o)
			b.ok(b.db.Save(raising(o, "later")).Error)
			b.want("1: later")
			require.NotEqual(b.t, id, b.rows()[0].MessageID, "a later event is a message of its own, with a time of its own")
		},
	})
}
