package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// tide is a store whose marks rise with every claim. All rows are of one shard.
type tide struct {
	*testing.T

	store *Store
	shard int
}

// tides keeps those who list the transactions of the server apart: each list keeps the others from being
// renewed.
var tides sync.Mutex

func newTide(t *testing.T) *tide {
	t.Helper()
	tides.Lock()
	t.Cleanup(tides.Unlock)
	db := openDB(t, with(testenv.MySQL(t), "interpolateParams="+strconv.FormatBool(testenv.Seed(t)%2 > 0)))
	d := &tide{T: t, store: newStore(t, db, "")}
	t.Cleanup(func() { require.NoError(t, d.store.Close()) })
	_, err := d.store.Migrate(t.Context())
	require.NoError(t, err)
	d.store.water.slow = 1
	d.insert(db, "first", 1)
	d.shard = int(column[int64](t, db, "SELECT shard FROM outbox_messages")[0])
	return d
}

// execer is a pool, a connection or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// insert writes rows of one key, in the order of the numbers behind a name.
func (d *tide) insert(on execer, name string, n int) {
	d.Helper()
	for i := range n {
		d.exec(on, `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
			VALUES (UNHEX(REPLACE(UUID(), '-', '')), 'b', 's', ?, 'key', '')`, fmt.Sprint(name, i))
	}
}

func (d *tide) exec(on execer, text string, args ...any) {
	d.Helper()
	_, err := on.ExecContext(d.Context(), text, args...)
	require.NoError(d, err)
}

// begin opens a transaction that has a snapshot, as one that has read something.
func (d *tide) begin() *sql.Tx {
	d.Helper()
	tx, err := d.store.db.BeginTx(context.WithoutCancel(d.Context()), nil)
	require.NoError(d, err)
	d.Cleanup(func() { _ = tx.Rollback() })
	var n int
	require.NoError(d, tx.QueryRowContext(d.Context(), "SELECT COUNT(*) FROM outbox_messages").Scan(&n))
	return tx
}

func (d *tide) claim(unordered bool) *driver.Claim {
	return &driver.Claim{Broker: "b", Shard: d.shard, Limit: 1000, Window: 1000, Lease: time.Hour, Worker: "w", Wake: true, Unordered: unordered}
}

// deliver claims and publishes what there is, and returns the types.
func (d *tide) deliver(unordered bool) (types []string) {
	d.Helper()
	exchanged, err := d.store.Exchange(d.Context(), nil, d.claim(unordered))
	require.NoError(d, err)
	if len(exchanged.Batch.Messages) == 0 {
		return nil
	}
	done := &driver.Completion{Lease: exchanged.Batch.Lease}
	for i := range exchanged.Batch.Messages {
		types = append(types, exchanged.Batch.Messages[i].Type)
		done.Published = append(done.Published, driver.Delivered{ID: exchanged.Batch.Messages[i].ID})
	}
	_, err = d.store.Exchange(d.Context(), done, nil)
	require.NoError(d, err)
	return types
}

func (d *tide) mark() waterMark {
	m, _ := d.store.water.basis("b", d.shard)
	return m
}

// highest is the highest id that was handed out and committed.
func (d *tide) highest() int64 {
	d.Helper()
	return column[int64](d.T, d.store.db, "SELECT MAX(id) FROM outbox_messages")[0]
}

// rise has claims find nothing until the mark is above an id, and its late rows are so many.
func (d *tide) rise(above int64, late int) {
	d.Helper()
	require.Eventually(d, func() bool {
		require.Empty(d, d.deliver(false))
		return d.mark().floor > above && len(d.mark().late) == late
	}, time.Minute, time.Millisecond)
}

// A claim beside a dump, or another old snapshot, begins behind what was published meanwhile; and rows
// of a transaction that has written before, and is open all the while, come in their places as soon as
// it commits.
func TestClaimsBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	for _, unordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("unordered %t", unordered), func(t *testing.T) {
			t.Parallel()
			d := newTide(t)
			dump, writer := d.begin(), d.begin()
			d.insert(writer, "late", 2)
			undone := d.begin()
			d.insert(undone, "undone", 1)
			require.Equal(t, []string{"first0"}, d.deliver(unordered))
			d.insert(d.store.db, "a", 50)
			require.Len(t, d.deliver(unordered), 50)
			d.rise(d.highest(), 3)
			d.insert(d.store.db, "b", 2)
			assert.Equal(t, []string{"b0", "b1"}, d.deliver(unordered))
			require.NoError(t, undone.Rollback())
			d.insert(writer, "later", 1)
			d.insert(d.store.db, "c", 1)
			ready := func() []int {
				found, err := d.store.Ready(t.Context(), "b", 0)
				require.NoError(t, err)
				return found.Shards
			}
			assert.Equal(t, []int{d.shard}, ready())
			assert.Equal(t, []string{"c0"}, d.deliver(unordered))
			assert.Empty(t, ready())
			require.NoError(t, writer.Commit())
			assert.Equal(t, []int{d.shard}, ready())
			assert.Equal(t, []string{"late0", "late1", "later0"}, d.deliver(unordered))
			assert.Empty(t, ready())
			d.insert(d.store.db, "d", 1)
			require.Equal(t, []string{"d0"}, d.deliver(unordered))
			d.rise(d.highest(), 0)
			require.NoError(t, dump.Rollback())
		})
	}
}

// A transaction that executes a statement may have taken ids for which it has not written rows yet, so
// no mark passes them until it was seen without one: also where another session reads the list of sessions all
// the while, which hides what they execute.
func TestMarksWaitForAStatement(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	require.Equal(t, []string{"first0"}, d.deliver(false))
	pause := d.session()
	d.exec(pause, "SELECT GET_LOCK(CONCAT('pause ', DATABASE()), 0)")
	writer := d.begin()
	done := make(chan error, 1)
	go func() { // the second row has its id, and waits
		_, err := writer.ExecContext(context.WithoutCancel(t.Context()), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload) VALUES
			(UNHEX(REPLACE(UUID(), '-', '')), 'b', 's', 'early0', 'key', REPEAT('`+strings.Repeat("x", 60_000)+`', 1)),
			(UNHEX(REPLACE(UUID(), '-', '')), 'b', 's', CONCAT('early', GET_LOCK(CONCAT('pause ', DATABASE()), 60)), 'key', '')`)
		done <- err
	}()
	dirty, err := d.store.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	require.NoError(t, err)
	defer dirty.Rollback()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, dirty.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_messages WHERE type = 'early0'").Scan(&n))
		return n == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, dirty.Rollback())
	d.exec(d.store.db, "INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload) VALUES (UNHEX(REPLACE(UUID(), '-', '')), 'other', 's', 't', '')")

	watching, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var watchers sync.WaitGroup
	for range 4 {
		watchers.Go(func() {
			for watching.Err() == nil {
				var text sql.NullString
				_ = d.store.db.QueryRowContext(watching, "SELECT MAX(info) FROM information_schema.processlist").Scan(&text) // until it is stopped
			}
		})
	}
	lists, last := 0, time.Time{}
	require.Eventually(t, func() bool {
		d.deliver(false)
		d.store.water.mu.Lock()
		defer d.store.water.mu.Unlock()
		if s := d.store.water.sighted; s.listed && s.next != last {
			lists, last = lists+1, s.next
		}
		return lists > 10 || d.store.water.horizon > 0
	}, time.Minute, time.Millisecond)
	stop()
	watchers.Wait()
	assert.Zero(t, d.store.water.horizon)
	d.exec(pause, "DO RELEASE_LOCK(CONCAT('pause ', DATABASE()))")
	require.NoError(t, <-done)
	d.rise(1, 2)
	d.insert(d.store.db, "more", 1)
	require.Equal(t, []string{"more0"}, d.deliver(false))
	d.rise(d.highest(), 2) // the next mark knows them, too
	require.NoError(t, writer.Commit())
	d.insert(d.store.db, "after", 1)
	assert.Equal(t, []string{"early0", "early1", "after0"}, d.deliver(false))
}

// session is one of the pool's, until the test ends.
func (d *tide) session() *sql.Conn {
	d.Helper()
	conn, err := d.store.db.Conn(context.WithoutCancel(d.Context()))
	require.NoError(d, err)
	d.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Whatever transactions, claims and operators do: a window by a mark has the rows of one without.
func TestMarksNeverPassARow(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	random := mathrand.New(mathrand.NewPCG(uint64(testenv.Seed(t)), 0))
	d.store.water.settling = 110 * time.Millisecond // the server answers with an old list before that
	type open struct {
		tx    *sql.Tx
		saved bool
	}
	writers, marked, beside, n := []open{}, 0, 0, 0
	pick := func() (i int, ok bool) { return random.IntN(max(1, len(writers))), len(writers) > 0 }
	steps := []func(){
		func() { // one begins
			if len(writers) < 4 {
				tx, err := d.store.db.BeginTx(context.WithoutCancel(t.Context()), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // others lock gaps
				require.NoError(t, err)
				t.Cleanup(func() { _ = tx.Rollback() })
				writers = append(writers, open{tx: tx})
			}
		},
		func() { // and writes
			if i, ok := pick(); ok {
				n++
				if random.IntN(3) == 0 {
					d.exec(writers[i].tx, "SAVEPOINT a")
					writers[i].saved = true
				}
				d.insert(writers[i].tx, fmt.Sprint(n, "/"), 1+random.IntN(3))
			}
		},
		func() { // or takes some of it back
			if i, ok := pick(); ok && writers[i].saved {
				d.exec(writers[i].tx, "ROLLBACK TO SAVEPOINT a")
			}
		},
		func() { // or ends
			if i, ok := pick(); ok && random.IntN(3) == 0 {
				if random.IntN(3) == 0 {
					require.NoError(t, writers[i].tx.Rollback())
				} else {
					require.NoError(t, writers[i].tx.Commit())
				}
				writers = slices.Delete(writers, i, i+1)
			}
		},
		func() { n++; d.insert(d.store.db, fmt.Sprint(n, "/"), 1) },
		func() { d.deliver(random.IntN(3) == 0) },
		func() { // one waits, and is deferred with its followers
			exchanged, err := d.store.Exchange(t.Context(), nil, d.claim(false))
			require.NoError(t, err)
			s := &driver.Completion{Lease: exchanged.Batch.Lease}
			for i := range exchanged.Batch.Messages {
				s.Other = append(s.Other, driver.Outcome{ID: exchanged.Batch.Messages[i].ID, Status: "failed", Delay: time.Duration(random.IntN(2)) * 20 * time.Millisecond, LastError: "{}"})
			}
			if len(s.Other) > 0 {
				_, err = d.store.Exchange(t.Context(), s, nil)
				require.NoError(t, err)
			}
			_, err = d.store.Defer(t.Context(), d.claim(false))
			require.NoError(t, err)
		},
		func() { // an operator brings back what is published
			if random.IntN(4) == 0 {
				ids := column[int64](t, d.store.db, "SELECT id FROM outbox_messages WHERE status = 'published' ORDER BY id")
				if len(ids) == 0 {
					return
				}
				tx, err := d.store.db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				d.exec(tx, "UPDATE outbox_messages_shards SET version = version + 1")
				d.exec(tx, "UPDATE outbox_messages SET status = 'pending', published_at = NULL, finished_at = NULL WHERE id = ?", ids[random.IntN(len(ids))])
				require.NoError(t, tx.Commit())
			}
		},
	}
	compare := func() {
		mark := d.mark()
		if mark.floor == 0 {
			return
		}
		tx, err := d.store.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		require.NoError(t, err)
		defer tx.Rollback()
		c := d.claim(false)
		whole, _, err := d.store.wholeWindow(t.Context(), tx, c)
		require.NoError(t, err)
		by, valid, err := d.store.byMark(t.Context(), tx, c, mark)
		require.NoError(t, err)
		if !valid {
			return
		}
		marked++
		if len(mark.late) > 0 {
			beside++
		}
		for _, w := range []*driver.Window{&whole, &by} {
			for i := range w.Rows { // times differ
				w.Rows[i].Waits = false
			}
		}
		require.Equal(t, whole, by)
	}
	for began := time.Now(); time.Since(began) < time.Minute && (marked < 200 || beside < 60); {
		for range 20 {
			steps[random.IntN(len(steps))]()
			compare()
		}
	}
	t.Logf("%d windows by a mark, %d of them with late rows", marked, beside)
	assert.GreaterOrEqual(t, marked, 200, "else the test tests little")
	assert.GreaterOrEqual(t, beside, 60)
}

// A role that may not see other sessions has claims without marks, and no errors.
func TestMarksNeedTheRightToSeeTransactions(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	config, err := mysql.ParseDSN(testenv.MySQL(t))
	require.NoError(t, err)
	config.DBName = column[string](t, d.store.db, "SELECT DATABASE()")[0]
	config.User, config.Passwd = "marks_"+strings.ToLower(rand.Text()[:12]), rand.Text()
	d.exec(d.store.db, "CREATE USER "+config.User+" IDENTIFIED BY '"+config.Passwd+"'")
	t.Cleanup(func() { _, _ = openDB(t, testenv.MySQL(t)).Exec("DROP USER " + config.User) }) //nolint:noctx // the test's context has ended
	d.exec(d.store.db, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+config.DBName+".* TO "+config.User)
	d.store = newStore(t, openDB(t, config.FormatDSN()), "")
	d.store.water.slow = 1
	require.Equal(t, []string{"first0"}, d.deliver(false))
	require.Eventually(t, func() bool {
		require.Empty(t, d.deliver(false))
		return d.store.water.refuses()
	}, time.Minute, time.Millisecond)
	assert.Zero(t, d.mark().floor)
	found, err := d.store.Diagnose(t.Context())
	require.NoError(t, err)
	assert.Contains(t, found.Settings, admin.Setting{Name: "right PROCESS", Value: "no"})
}
