package gormplugin_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// unlucky writes two aggregates and publishes in a transaction that must fail in the end, and tries
// again when what was in the way is gone: nothing was lost, and the ids are the same.
func (b *bench) unlucky(spoil, repair func(tx *gorm.DB)) {
	b.t.Helper()
	first, second := order("1", "a"), order("2", "b")
	id := idOf(first)
	attempt := func(spoil func(tx *gorm.DB)) error {
		return b.db.Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(first).Error)
			b.ok(tx.Create(second).Error)
			b.ok(uow.Publish(tx, Happened{"c"}))
			spoil(tx)
			return nil
		})
	}
	require.Error(b.t, attempt(spoil))
	b.settled()
	repair(b.db)
	b.want()
	assert.Zero(b.t, b.orders())
	b.pending(first, "a")
	b.pending(second, "b")
	b.ok(attempt(nothing))
	b.want("1: a", "2: b", ": c")
	assert.Equal(b.t, id, b.rows()[0].MessageID)
	b.pending(first)
}

func nothing(*gorm.DB) {}

func TestFailures(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a transaction that was ended behind GORM's back": func(b *bench) {
			b.unlucky(func(tx *gorm.DB) {
				inner, ok := gormplugin.SQLTx(tx)
				require.True(b.t, ok)
				b.ok(inner.Rollback())
			}, nothing)
		},
		"a connection that is lost before the commit": func(b *bench) {
			b.only(outbox.Postgres, "the others have no easy way to end one's own session")
			b.unlucky(func(tx *gorm.DB) { _ = tx.Exec("SELECT pg_terminate_backend(pg_backend_pid())") }, nothing)
		},
		"a flush that finds no table": func(b *bench) {
			table, elsewhere := b.at.outbox(), b.at.prefix+"elsewhere"
			b.rename(b.db, table, elsewhere)
			b.unlucky(nothing, func(db *gorm.DB) { b.rename(db, elsewhere, table) })
		},
		"a context that is cancelled before the commit": func(b *bench) {
			ctx, cancel := context.WithCancel(b.t.Context())
			o := order("1", "a")
			require.Error(b.t, b.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(o).Error)
				cancel()
				return nil
			}))
			b.settled()
			b.want()
			b.pending(o, "a")
		},
	})
}

// rename renames the outbox table.
func (b *bench) rename(db *gorm.DB, from, to string) {
	b.t.Helper()
	b.at.changed.Store(true)
	if b.dialect == outbox.SQLServer {
		b.ok(db.Exec("EXEC sp_rename '" + from + "', '" + to + "'").Error)
		return
	}
	b.ok(db.Exec("ALTER TABLE " + from + " RENAME TO " + to).Error)
}

// An event that cannot leave fails its transaction, and the error names it.
func TestRefusedEvents(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	for name, refused := range map[string]struct {
		event   any
		options []envelope.Option
		says    string
	}{
		"not registered":       {event: Unregistered{1}, says: "envelope.Register["},
		"not to be encoded":    {event: Unencodable{make(chan int)}, says: "unsupported type: chan"},
		"over the limit":       {event: OrderPlaced{strings.Repeat("x", maxPayload)}, says: "max_payload_bytes"},
		"for a broker unknown": {event: OrderPlaced{"1"}, options: []envelope.Option{envelope.To("nobody")}, says: "nobody"},
		"an option of types":   {event: Happened{"x"}, options: []envelope.Option{envelope.Version(2)}, says: "Version"},
	} {
		cases[name] = func(b *bench) {
			o := order("1", "fine")
			o.Raise(refused.event, refused.options...)
			err := b.db.Create(o).Error
			require.ErrorContains(b.t, err, refused.says)
			require.ErrorContains(b.t, err, reflect.TypeOf(refused.event).Name())
			b.settled()
			b.want()
			assert.Zero(b.t, b.orders(), "the transaction rolled back")
			assert.Len(b.t, uow.Pending(o), 2, "nothing is lost")
		}
	}
	runCases(t, cases)
}
