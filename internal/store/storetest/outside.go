package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var outsideTests = func() []test {
	tests := make([]test, len(crossings))
	for i, c := range crossings {
		tests[i] = test{name: c.name, run: func(t *table) { testCrossing(t, c) }}
	}
	return tests
}()

// crossingRows is how many rows an operation of a store changes here. They are more than the other
// session does: some servers break off whoever has changed less.
const crossingRows = 9

// A crossing is an operation of a store that changes rows.
type crossing struct {
	name   string
	claims bool
	// prepare makes the rows, and returns their ids and the operation.
	prepare func(t *table) (ids []int64, operation func(driver.Store) error)
	// check looks at the rows when all is done.
	check func(t *table, ids []int64)
}

var crossings = []crossing{
	{"Claim", true, func(t *table) ([]int64, func(driver.Store) error) {
		ids := t.add(t.keys(crossingRows)...)
		return ids, t.claims(ids)
	}, checkClaimed},
	{"ClaimWithADecision", true, func(t *table) ([]int64, func(driver.Store) error) {
		ids := t.add(t.keys(crossingRows)...)
		t.exec("UPDATE {t} SET crashes = 1 WHERE id = ?", ids[crossingRows-1]) // which is claimed alone
		return ids[:crossingRows-1], t.claims(ids[:crossingRows-1])
	}, checkClaimed},
	{"CompletePublished", false, func(t *table) ([]int64, func(driver.Store) error) {
		batch, ids := t.claimSome()
		return ids, completes(published(batch))
	}, func(t *table, ids []int64) {
		t.Helper()
		assert.Equal(t, len(ids), t.count(outbox.StatusPublished))
		assert.Equal(t, int64(len(ids)), t.number("SELECT sum(attempts) FROM {t}"), "counted once")
	}},
	{"CompleteOther", false, func(t *table) ([]int64, func(driver.Store) error) {
		batch, ids := t.claimSome()
		return ids, completes(outcome(batch, driver.Outcome{Status: outbox.StatusFailed, Spent: true}))
	}, func(t *table, ids []int64) {
		t.Helper()
		assert.Equal(t, len(ids), t.count(outbox.StatusFailed))
		assert.Equal(t, int64(len(ids)), t.number("SELECT sum(attempts) FROM {t}"), "counted once")
	}},
	{"Renew", false, func(t *table) ([]int64, func(driver.Store) error) {
		batch, ids := t.claimSome()
		return ids, func(store driver.Store) error {
			kept, err := store.Renew(t.background(), batch.Lease)
			if err == nil && kept != len(ids) {
				err = fmt.Errorf("renewed %d", kept)
			}
			return err
		}
	}, checkClaimed},
	{"Defer", false, func(t *table) ([]int64, func(driver.Store) error) {
		ids := t.waiting()
		return ids, func(store driver.Store) error {
			deferred := 0
			for deferred < len(ids) { // a row that changed meanwhile is left out, until the next time
				n, err := store.Defer(t.background(), t.request())
				if err != nil {
					return err
				}
				deferred += n
			}
			return nil
		}
	}, func(t *table, ids []int64) {
		t.Helper()
		assert.Equal(t, len(ids), t.deferred())
		assert.Equal(t, len(ids), t.blocks())
	}},
	{"Wake", true, func(t *table) ([]int64, func(driver.Store) error) {
		ids := t.waiting()
		require.Equal(t, len(ids), t.deferRows())
		t.pass()
		return ids, t.claims(ids)
	}, checkClaimed},
	{"Free", true, func(t *table) ([]int64, func(driver.Store) error) {
		ids := t.add(slices.Repeat(t.keys(1), crossingRows+1)...)
		t.failHead(ids[0])
		require.Equal(t, len(ids), t.deferRows())
		t.pass()
		head := t.claim(wake)
		require.Equal(t, ids[:1], taken(head))
		t.publish(head)
		return ids[1:], t.claims(ids[1:])
	}, func(t *table, ids []int64) {
		t.Helper()
		checkClaimed(t, ids)
		assert.Zero(t, t.deferred())
		assert.Zero(t, t.blocks())
	}},
	{"Requeue", false, func(t *table) ([]int64, func(driver.Store) error) {
		return t.waiting(), operates(func(ctx context.Context, store driver.Store) (int, error) {
			return store.Requeue(ctx, admin.Filter{Broker: broker}, many)
		})
	}, func(t *table, ids []int64) {
		t.Helper()
		assert.Equal(t, len(ids), t.count(outbox.StatusPending))
	}},
	{"Abandon", false, func(t *table) ([]int64, func(driver.Store) error) {
		return t.waiting(), operates(func(ctx context.Context, store driver.Store) (int, error) {
			return store.Abandon(ctx, admin.Filter{Broker: broker}, "not wanted", many)
		})
	}, func(t *table, ids []int64) {
		t.Helper()
		assert.Equal(t, len(ids), t.count(outbox.StatusAbandoned))
	}},
	{"Replay", false, func(t *table) ([]int64, func(driver.Store) error) {
		batch, ids := t.claimSome()
		t.publish(batch)
		return ids, operates(func(ctx context.Context, store driver.Store) (int, error) {
			return store.Replay(ctx, admin.Filter{Broker: broker, Statuses: admin.ReplayStatuses()}, many)
		})
	}, func(t *table, ids []int64) {
		t.Helper()
		assert.Equal(t, len(ids), t.count(outbox.StatusPending))
	}},
}

// operates is an operator's operation.
func operates(change func(context.Context, driver.Store) (int, error)) func(driver.Store) error {
	return func(store driver.Store) error {
		n, err := change(context.Background(), store)
		if err == nil && n != crossingRows {
			err = fmt.Errorf("%d rows were changed", n)
		}
		return err
	}
}

// claims is an operation that claims rows, all of them: those that are locked when they are free.
func (t *table) claims(ids []int64) func(driver.Store) error {
	return func(store driver.Store) error {
		var got []int64
		for began := time.Now(); len(got) < len(ids) && time.Since(began) < time.Minute; {
			result, err := store.Exchange(t.background(), nil, t.request(wake, limit(len(ids)), window(crossingRows)))
			if err != nil {
				return err
			}
			for _, id := range taken(result.Batch) {
				if slices.Contains(ids, id) { // one that comes alone may come in between
					got = append(got, id)
				}
			}
		}
		if slices.Sort(got); !slices.Equal(ids, got) {
			return fmt.Errorf("claimed %v of %v", got, ids)
		}
		return nil
	}
}

func completes(completion *driver.Completion) func(driver.Store) error {
	return func(store driver.Store) error {
		result, err := exchange(context.Background(), store, completion, nil)
		if err == nil && result.Completed.Lost > 0 {
			err = fmt.Errorf("%d outcomes are lost", result.Completed.Lost)
		}
		return err
	}
}

// claimSome claims rows of keys of their own.
func (t *table) claimSome() (driver.Batch, []int64) {
	t.Helper()
	ids := t.add(t.keys(crossingRows)...)
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	return batch, ids
}

// waiting makes rows that wait for their next attempts.
func (t *table) waiting() []int64 {
	t.Helper()
	batch, ids := t.claimSome()
	require.Zero(t, t.complete(retryLater(batch, ids...)).Lost)
	return ids
}

func checkClaimed(t *table, ids []int64) {
	t.Helper()
	assert.Equal(t, int64(len(ids)), t.number("SELECT count(*) FROM {t} WHERE status = 'processing' AND crashes = 0"))
}

// Any session may update rows in any order, as an operator's UPDATE does. It has one end of the rows
// that an operation of a store is about to change, the operation locks the others, and then the
// session wants the other end: neither fails, and the outcome is that of one after the other.
func testCrossing(t *table, c crossing) {
	if t.OneWriter {
		t.Skip("writers take turns on this database")
	}
	if c.claims && t.sql.passesOver {
		t.Skip("claims pass over locked rows on this database")
	}
	for name, backwards := range map[string]bool{"OrderOfIDs": false, "ReverseOrder": true} {
		t.Run(name, func(test *testing.T) {
			t := newTable(test, t.Bundle)
			if backwards && t.PrefersLarger {
				t.Skip("the server decides who is broken off")
			}
			t.exec("DELETE FROM {t}")
			t.exec("DELETE FROM {t}_key_blocks")
			testCrossingFrom(t, c, backwards)
		})
	}
}

func testCrossingFrom(t *table, c crossing, backwards bool) {
	store := t.Store
	if t.OpenUnhurried != nil {
		store = t.OpenUnhurried(t.T, t.Table)
	}
	ids, operation := c.prepare(t)
	order := []int64{ids[0], ids[len(ids)-1]}
	if backwards {
		slices.Reverse(order)
	}
	session := t.outsider()
	session.scrub(order[0])
	operated := make(chan error, 1)
	go func() { operated <- operation(store) }()
	session.awaitOthers(operated)
	session.scrub(order[1])
	require.NoError(t, session.tx.Commit())
	require.NoError(t, <-operated, "the operation goes on when the rows are free")
	c.check(t, ids)
	assert.Equal(t, int64(2), t.number("SELECT count(*) FROM {t} WHERE correlation_id = 'scrubbed'"), "nothing of the other session's is lost")
}

// An outsider is a session that is none of the store's.
type outsider struct {
	*table
	tx     *sql.Tx
	number int64
}

// outsider begins a transaction of another session.
func (t *table) outsider() *outsider {
	t.Helper()
	o := &outsider{table: t}
	var err error
	o.tx, err = t.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.tx.Rollback() })
	if t.sql.hurried != "" {
		_, err = o.tx.ExecContext(t.Context(), t.sql.hurried)
		require.NoError(t, err)
	}
	require.NoError(t, o.tx.QueryRowContext(t.Context(), t.sql.session).Scan(&o.number))
	return o
}

// scrub changes what delivery does not look at, as an operator does who removes personal data.
func (o *outsider) scrub(id int64) {
	o.Helper()
	_, err := o.tx.ExecContext(o.Context(), o.render("UPDATE {t} SET correlation_id = 'scrubbed' WHERE id = ?"), id)
	require.NoError(o, err, "another session is no victim of the store's")
}

// awaitOthers returns when another session waits for this one, or has given way to it: then it has
// run more statements than any operation has before it comes to the rows.
func (o *outsider) awaitOthers(operated chan error) {
	o.Helper()
	const most = 10
	watch, err := o.DB.Conn(o.Context())
	require.NoError(o, err)
	defer watch.Close()
	var last int64
	changes := 0
	require.Eventually(o, func() bool {
		if len(operated) > 0 {
			operated <- fmt.Errorf("it has not met the other session: %w", <-operated)
			return true
		}
		var waiting, statement int64
		if err := watch.QueryRowContext(o.Context(), o.render(o.sql.waiting), o.number).Scan(&waiting, &statement); err != nil {
			return false
		}
		if statement != last {
			last = statement
			changes++
		}
		return waiting > 0 || changes > most
	}, time.Minute, time.Millisecond)
}
