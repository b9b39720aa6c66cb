package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/driver"
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
	db := openDB(t, with(testenv.MySQL(t), "interpolateParams=true"))
	d := &tide{T: t, store: newStore(t, db, "")}
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
			VALUES (UNHEX(MD5(UUID())), 'b', 's', ?, 'key', '')`, fmt.Sprint(name, i))
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
			published := d.highest()
			d.rise(published, 3)

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
// no mark passes them until it was seen without a statement.
func TestMarksWaitForAStatement(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	lock := d.begin()
	d.exec(lock, "SELECT slot FROM outbox_messages_key_slots WHERE slot = 7 FOR UPDATE")
	writer := d.begin()
	d.insert(writer, "early", 1)
	done := make(chan error, 1)
	go func() {
		_, err := writer.ExecContext(context.WithoutCancel(t.Context()), "SELECT slot FROM outbox_messages_key_slots WHERE slot = 7 FOR UPDATE")
		done <- err
	}()
	require.Eventually(t, func() bool {
		return len(column[string](t, d.store.db, "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE '%slot = 7%'")) > 0
	}, time.Minute, 110*time.Millisecond) // the server answers with an old list before that
	require.Equal(t, []string{"first0"}, d.deliver(false))
	listed := func() bool {
		d.deliver(false)
		d.store.water.mu.Lock()
		defer d.store.water.mu.Unlock()
		return d.store.water.sighted.listed
	}
	require.Eventually(t, listed, time.Minute, time.Millisecond)
	for range 20 {
		d.deliver(false)
	}
	assert.Zero(t, d.mark().floor)
	require.NoError(t, lock.Rollback())
	require.NoError(t, <-done)
	d.rise(1, 1)
	require.NoError(t, writer.Commit())
	assert.Equal(t, []string{"early0"}, d.deliver(false))
}

// Rows that come back below a mark are claimed: of blocks that this process lifts, of what operators do,
// and what is opened by hand, by the next full look.
func TestRowsComeBackBelowAMark(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	fail := func(id int64, outcome driver.Outcome) {
		exchanged, err := d.store.Exchange(t.Context(), nil, d.claim(false))
		require.NoError(t, err)
		require.Len(t, exchanged.Batch.Messages, 1)
		outcome.ID = id
		_, err = d.store.Exchange(t.Context(), &driver.Completion{Lease: exchanged.Batch.Lease, Other: []driver.Outcome{outcome}}, nil)
		require.NoError(t, err)
	}
	id := d.highest()
	fail(id, driver.Outcome{Status: "failed", Spent: true, Delay: time.Hour, LastError: `{}`})
	deferred, err := d.store.Defer(t.Context(), d.claim(false))
	require.NoError(t, err)
	require.Equal(t, 1, deferred)
	d.rise(id, 0)
	due := func() {
		d.exec(d.store.db, "UPDATE outbox_messages SET locked_until = UTC_TIMESTAMP(6) WHERE id = ?", id)
		d.exec(d.store.db, "UPDATE outbox_messages_key_blocks SET wake_at = UTC_TIMESTAMP(6) WHERE block_id = ?", id)
	}
	due()
	before := d.mark()
	assert.Equal(t, []string{"first0"}, d.deliver(false))
	if after := d.mark(); assert.Equal(t, before.floor, after.floor, "what this process lifts, it knows") {
		assert.Equal(t, []int64{id}, after.late)
	}
	d.rise(id, 0)

	d.exec(d.store.db, "UPDATE outbox_messages SET status = 'pending', published_at = NULL, finished_at = NULL WHERE id = ?", id)
	assert.Empty(t, d.deliver(false), "nobody has counted that")
	d.store.water.mu.Lock()
	d.store.water.line("b", d.shard).full = time.Time{}
	d.store.water.mu.Unlock()
	assert.Equal(t, []string{"first0"}, d.deliver(false))
	d.rise(id, 0)

	d.exec(d.store.db, "UPDATE outbox_messages SET status = 'pending', published_at = NULL, finished_at = NULL WHERE id = ?", id)
	d.exec(d.store.db, "UPDATE outbox_messages_shards SET version = version + 1")
	assert.Equal(t, []string{"first0"}, d.deliver(false), "an operator has")
	d.rise(id, 0)
	d.exec(d.store.db, "UPDATE outbox_messages SET status = 'pending', published_at = NULL, finished_at = NULL WHERE id = ?", id)
	d.exec(d.store.db, "UPDATE outbox_messages_shards SET version = version + 1")
	ready, err := d.store.Ready(t.Context(), "b", 0)
	require.NoError(t, err)
	assert.Equal(t, []int{d.shard}, ready.Shards, "and a look sees it, too")
}

// Marks are those of one server since its start: a session of another one is recognized, and all marks
// are dropped.
func TestMarksAreThoseOfOneServer(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"look", "claim", "claim without order"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			d := newTide(t)
			require.Equal(t, []string{"first0"}, d.deliver(false))
			d.rise(1, 0)
			// As if the server had begun anew, with what it had lost.
			d.exec(d.store.db, "INSERT INTO outbox_messages (id, message_id, target_broker, stream, type, ordering_key, payload) VALUES (-1, UNHEX(MD5(UUID())), 'b', 's', 'again', 'key', '')")
			d.store.db.SetMaxIdleConns(0) // all sessions end
			d.store.db.SetMaxIdleConns(10)
			if assert.Empty(t, d.deliver(false), "the same server") {
				d.store.water.mu.Lock()
				d.store.water.started -= 10
				d.store.water.mu.Unlock()
			}
			d.store.db.SetMaxIdleConns(0)
			d.store.db.SetMaxIdleConns(10)
			if first == "look" {
				ready, err := d.store.Ready(t.Context(), "b", 0)
				require.NoError(t, err)
				assert.Equal(t, []int{d.shard}, ready.Shards)
			}
			assert.Equal(t, []string{"again"}, d.deliver(first == "claim without order"))
		})
	}
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
		func() { // somebody begins
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
		for i := range whole.Rows { // times differ
			whole.Rows[i].Waits, by.Rows[i].Waits = false, false
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
	assert.Contains(t, found.Settings, driver.Setting{Name: "right PROCESS", Value: "no"})
}
