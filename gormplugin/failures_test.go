package gormplugin_test

import (
	"context"
	"math"
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
	attempt := func(ctx context.Context, spoil func(tx *gorm.DB)) error {
		return b.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			b.ok(tx.Create(first).Error)
			b.ok(tx.Create(second).Error)
			b.ok(uow.Publish(tx, Happened{"c"}))
			spoil(tx)
			return nil
		})
	}
	require.Error(b.t, attempt(b.t.Context(), spoil))
	b.settled()
	repair(b.db)
	b.want()
	assert.Zero(b.t, b.orders())
	b.pending(first, "a")
	b.pending(second, "b")
	b.ok(attempt(b.t.Context(), func(*gorm.DB) {}))
	b.want("1: a", "2: b", ": c")
	assert.Equal(b.t, id, b.rows()[0].MessageID)
	b.pending(first)
}

func nothing(*gorm.DB) {}

func TestFailures(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a statement that fails": func(b *bench) {
			b.stored("1")
			o := order("1", "a")
			require.Error(b.t, b.db.Create(o).Error)
			b.want()
			b.pending(o, "a")
		},
		"a statement that fails without a default transaction": func(b *bench) {
			b.stored("1")
			o := order("1", "a")
			require.Error(b.t, b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(o).Error)
			b.want()
			b.pending(o, "a")
		},
		"a statement on a column that is not there": func(b *bench) {
			o := b.stored("1", "a")
			require.Error(b.t, b.db.Model(o).Update("nowhere", "x").Error)
			b.want()
			b.pending(o, "a")
		},
		"a rollback by hand after a statement that failed": func(b *bench) {
			b.stored("1")
			first, twin := order("2", "b"), order("1", "a")
			tx := b.db.Begin()
			b.ok(tx.Create(first).Error)
			require.Error(b.t, tx.Create(twin).Error)
			b.ok(tx.Rollback().Error)
			b.want()
			b.pending(first, "b")
			b.pending(twin, "a")
		},
		"a commit by hand after a statement that failed": func(b *bench) {
			b.stored("1")
			first, twin := order("2", "b"), order("1", "a")
			tx := b.db.Begin()
			b.ok(tx.Create(first).Error)
			require.Error(b.t, tx.Create(twin).Error)
			err := tx.Commit().Error
			b.pending(twin, "a")
			if b.dialect == outbox.Postgres { // the transaction was lost with the statement
				require.Error(b.t, err)
				b.want()
				b.pending(first, "b")
				return
			}
			b.ok(err)
			b.want("2: b")
			b.pending(first)
		},
		"an error that the transaction's function swallows": func(b *bench) {
			b.stored("1")
			first := order("2", "b")
			err := b.db.Transaction(func(tx *gorm.DB) error {
				b.ok(tx.Create(first).Error)
				_ = tx.Create(order("1", "a"))
				return nil
			})
			if b.dialect == outbox.Postgres {
				require.Error(b.t, err)
				b.want()
				b.pending(first, "b")
				return
			}
			b.ok(err)
			b.want("2: b")
		},
		"a constraint that is violated at the commit": func(b *bench) {
			b.only(outbox.Postgres, "SQL Server knows no deferred constraints, and for SQLite's see TestCommitsThatAConstraintRefuses")
			b.at.changed.Store(true)
			lines := b.table(&Line{})
			b.ok(b.db.Exec("ALTER TABLE " + lines + " ADD CONSTRAINT " + lines + "_later FOREIGN KEY (order_id) REFERENCES " +
				b.table(&Order{}) + " DEFERRABLE INITIALLY DEFERRED").Error)
			b.unlucky(func(tx *gorm.DB) { b.ok(tx.Exec("INSERT INTO " + lines + " (order_id) VALUES ('nobody')").Error) }, nothing)
		},
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
		"a flush that finds no table, of one statement": func(b *bench) {
			b.rename(b.db, b.at.outbox(), b.at.prefix+"elsewhere")
			o := order("1", "a")
			err := b.db.Create(o).Error
			require.ErrorIs(b.t, err, outbox.ErrSchema)
			require.ErrorContains(b.t, err, "fanout migrate")
			b.settled()
			assert.Zero(b.t, b.orders())
			b.pending(o, "a")
		},
		"a flush that finds no table, of a commit by hand": func(b *bench) {
			b.rename(b.db, b.at.outbox(), b.at.prefix+"elsewhere")
			tx := b.db.Begin()
			b.ok(tx.Create(order("1", "a")).Error)
			require.ErrorIs(b.t, tx.Commit().Error, outbox.ErrSchema)
			b.settled()
			assert.Zero(b.t, b.orders())
		},
		"a flush that finds no table, without a default transaction": func(b *bench) {
			b.rename(b.db, b.at.outbox(), b.at.prefix+"elsewhere")
			require.ErrorIs(b.t, b.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(order("1", "a")).Error, outbox.ErrSchema)
			b.settled()
			assert.Zero(b.t, b.orders())
		},
		"an event that is written already": func(b *bench) {
			// Another copy of the aggregate, from before the commit, is written again.
			o := order("1", "a")
			b.ok(b.db.Create(o).Error)
			b.ok(b.db.Exec("UPDATE " + b.at.outbox() + " SET priority = 7").Error)
			b.ok(b.db.Save(raising(o, "b")).Error)
			b.want("1: a", "1: b")
			assert.Equal(b.t, 7, b.rows()[0].Priority)
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
		"a context that is cancelled before the statement": func(b *bench) {
			ctx, cancel := context.WithCancel(b.t.Context())
			cancel()
			o := order("1", "a")
			require.ErrorIs(b.t, b.db.WithContext(ctx).Create(o).Error, context.Canceled)
			b.want()
			b.pending(o, "a")
		},
		"a context that is cancelled in a hook": func(b *bench) {
			ctx, cancel := context.WithCancel(b.t.Context())
			h := hooked("1", "AfterCreate", func(*Hooked, *gorm.DB) error {
				cancel()
				return nil
			})
			require.Error(b.t, b.db.WithContext(ctx).Create(raising(h, "a")).Error)
			b.settled()
			b.want()
			b.pending(h, "a")
			assert.Zero(b.t, b.count(&Hooked{}))
		},
		"a context that is cancelled in a hook without a default transaction": func(b *bench) {
			ctx, cancel := context.WithCancel(b.t.Context())
			h := hooked("1", "AfterCreate", func(*Hooked, *gorm.DB) error {
				cancel()
				return nil
			})
			require.Error(b.t, b.db.Session(&gorm.Session{SkipDefaultTransaction: true, Context: ctx}).Create(raising(h, "a")).Error)
			b.settled()
			b.want()
			b.pending(h, "a")
			assert.Zero(b.t, b.count(&Hooked{}))
		},
		"a context that is cancelled after the commit": func(b *bench) {
			ctx, cancel := context.WithCancel(b.t.Context())
			b.ok(b.db.WithContext(ctx).Create(order("1", "a")).Error)
			cancel()
			b.ok(b.db.Create(order("2", "b")).Error)
			b.want("1: a", "2: b")
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

func TestRefusedEvents(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	loop := Cyclic{}
	loop.Next = &loop
	for name, refused := range map[string]struct {
		event   any
		options []envelope.Option
		says    []string
	}{
		"an event that is not registered":     {event: Unregistered{1}, says: []string{"Unregistered", "envelope.Register["}},
		"an event that cannot be encoded":     {event: Unencodable{make(chan int)}, says: []string{"Unencodable", "chan"}},
		"an event that is a pointer":          {event: &OrderPlaced{"1"}, says: []string{"OrderPlaced", "pointer"}},
		"an event over the limit":             {event: OrderPlaced{strings.Repeat("x", maxPayload)}, says: []string{"OrderPlaced", "max_payload_bytes"}},
		"an event that holds no number":       {event: Measured{math.NaN()}, says: []string{"Measured", "NaN"}},
		"an event that holds infinity":        {event: Measured{math.Inf(1)}, says: []string{"Measured", "Inf"}},
		"an event that holds itself":          {event: loop, says: []string{"Cyclic", "cycle"}},
		"an event that is nil":                {event: nil, says: []string{"the event is nil"}},
		"an event for a broker not there":     {event: OrderPlaced{"1"}, options: []envelope.Option{envelope.To("nobody")}, says: []string{"OrderPlaced", "nobody"}},
		"an event for a broker, yet internal": {event: Happened{"x"}, options: []envelope.Option{envelope.To("partner")}, says: []string{"Happened", "Published()"}},
		"an option of types on an event":      {event: Happened{"x"}, options: []envelope.Option{envelope.Version(2)}, says: []string{"Happened", "Version"}},
	} {
		check := func(b *bench, o *Order, err error) {
			b.t.Helper()
			for _, text := range refused.says {
				require.ErrorContains(b.t, err, text)
			}
			b.settled()
			b.want()
			assert.Zero(b.t, b.orders(), "the transaction rolled back")
			assert.Len(b.t, uow.Pending(o), 2, "nothing is lost")
		}
		raise := func() *Order {
			o := order("1", "fine")
			o.Raise(refused.event, refused.options...)
			return o
		}
		cases[name] = func(b *bench) {
			o := raise()
			check(b, o, b.db.Transaction(func(tx *gorm.DB) error { return tx.Create(o).Error }))
		}
		cases[name+", in one statement"] = func(b *bench) {
			o := raise()
			check(b, o, b.db.Create(o).Error)
		}
		cases[name+", at a commit by hand"] = func(b *bench) {
			o := raise()
			tx := b.db.Begin()
			b.ok(tx.Create(o).Error)
			check(b, o, tx.Commit().Error)
		}
	}
	runCases(t, cases)
}
