package gormplugin_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

// correlations are those of the internal broker's rows, in order; they stand in the payload, too.
func (b *bench) correlations() (all []string) {
	b.t.Helper()
	for _, r := range b.rows() {
		require.NotNil(b.t, r.CorrelationID, "%s for %s", r.Type, r.TargetBroker)
		domain := part(internalOf(b.t, r), "metadata", "domain")
		assert.Equal(b.t, domain["correlation_id"], *r.CorrelationID)
		if r.TargetBroker == "default" {
			all = append(all, *r.CorrelationID)
		}
	}
	return all
}

// all is a list of the same text.
func all(n int, text string) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = text
	}
	return texts
}

// Where the context has no correlation id, the events of a unit of work have a common one: the
// message id of the first of them, which repeated attempts keep.
func TestCorrelations(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){
		"a transaction of several aggregates and none": func(b *bench) {
			second, first := order("2", "a"), order("1", "b")
			id := idOf(second) // raised first, and written last
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(first).Error)
				b.ok(uow.Publish(tx, Happened{"c"}))
				return tx.Create(second).Error
			}))
			b.want("2: a", "1: b", ": c")
			assert.Equal(b.t, all(3, id), b.correlations())
		},
		"what a savepoint takes back is not the first": func(b *bench) {
			b.ok(b.db.Transaction(func(tx *gorm.DB) error {
				b.goesBack(tx, func(tx *gorm.DB) { b.ok(uow.Publish(tx, Happened{"undone"})) })
				b.ok(uow.Publish(tx, Happened{"a"}))
				return uow.Publish(tx, Happened{"b"})
			}))
			b.want(": a", ": b")
			assert.Equal(b.t, all(2, b.rows()[0].MessageID), b.correlations())
		},
		"a transaction of the caller's own": func(b *bench) {
			o := order("1", "a")
			id := idOf(o)
			own, err := b.pool().BeginTx(b.t.Context(), nil)
			b.ok(err)
			db := b.adopt(own)
			b.ok(db.Create(o).Error)
			b.ok(uow.Publish(db.WithContext(envelope.WithCorrelationID(b.t.Context(), "given")), Happened{"b"}))
			b.ok(uow.Publish(db, Happened{"c"}))
			b.ok(own.Commit())
			b.want("1: a", ": b", ": c")
			assert.Equal(b.t, []string{id, "given", id}, b.correlations())
		},
	}
	for name, commits := range map[string]bool{"and may have committed": true, "and has rolled back": false} {
		cases["a commit that got no answer "+name+", repeated in another order"] = func(b *bench) {
			db, _ := b.lose(commits)
			o, attempts := order("1"), 0
			b.ok(uow.Do(b.t.Context(), db, func(u *uow.Unit) error {
				attempts++
				if attempts == 2 {
					b.ok(u.Publish(StockReserved{"new"}))
				}
				b.ok(u.Publish(Happened{"a"}))
				return u.DB.Save(raising(o, "b")).Error
			}, uow.WithRetry(2), uow.WithRetryIf(func(err error) bool { return errors.Is(err, errLost) })))
			assert.Equal(b.t, 2, attempts)
			var first string
			for _, r := range b.rows() {
				if r.AggregateID == nil && r.Type == "Ordering.Happened.v1" {
					first = r.MessageID
				}
			}
			assert.Equal(b.t, all(3, first), b.correlations())
		}
	}
	runCases(t, cases)
}
