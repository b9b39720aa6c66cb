package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// newStore makes a store with its table, and a claim on it.
func newStore(t *testing.T, opts ...Option) (*Store, *driver.Claim) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(0)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store, err := New(db, "", opts...)
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	return store, &driver.Claim{Broker: "b", Limit: 10, Window: 10, Lease: time.Hour, Worker: "w"}
}

func insert(t *testing.T, store *Store) {
	t.Helper()
	inserter, err := outbox.NewInserter(outbox.SQLite, store.table)
	require.NoError(t, err)
	require.NoError(t, inserter.Insert(t.Context(), store.db, []outbox.Row{
		{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", OrderingKey: "k", Payload: []byte("{}")},
	}))
}

// A limit holds for all transactions of an action together.
func TestOperateInChunks(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	inserter, err := outbox.NewInserter(outbox.SQLite, store.table)
	require.NoError(t, err)
	rows := make([]outbox.Row, 2*sqladmin.OperateRows)
	for n := range rows {
		rows[n] = outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", Payload: []byte("{}")}
	}
	require.NoError(t, inserter.Insert(t.Context(), store.db, rows))
	for _, want := range []int{sqladmin.OperateRows + 1, sqladmin.OperateRows - 1} {
		n, err := store.Abandon(t.Context(), admin.Filter{}, "enough", sqladmin.OperateRows+1)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
}

// lock takes the database's write lock until release is called.
func lock(t *testing.T, store *Store) (release func()) {
	t.Helper()
	conn, err := store.db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	return func() {
		_, err := conn.ExecContext(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
}

// TestIdleClaimTakesNoLock: an outbox with nothing to do leaves the writers alone.
func TestIdleClaimTakesNoLock(t *testing.T) {
	t.Parallel()
	store, claim := newStore(t)
	insert(t, store)
	result, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, result.Batch.Messages, 1)
	insert(t, store) // waits for the first, and looks ready
	defer lock(t, store)()
	for _, unordered := range []bool{false, true} {
		idle := *claim
		idle.Unordered, idle.Broker = unordered, "nobody"
		result, err = store.Exchange(t.Context(), nil, &idle)
		require.NoError(t, err)
		assert.Empty(t, result.Batch.Messages)
	}
	idle := *claim
	idle.Window = 1 // sees the leased row alone
	result, err = store.Exchange(t.Context(), nil, &idle)
	require.NoError(t, err)
	assert.Equal(t, 1, result.Batch.Seen)
}

// TestWaitsForTheLock: a claim that has something to do waits, bounded by its context, and leaves
// nothing behind.
func TestWaitsForTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, claim := newStore(t)
		insert(t, store)
		release := lock(t, store)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := store.Exchange(ctx, nil, claim)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = store.Exchange(t.Context(), nil, claim)
		require.ErrorContains(t, err, "another connection holds the lock for long")

		done := make(chan driver.Exchanged)
		go func() {
			result, err := store.Exchange(context.WithoutCancel(t.Context()), nil, claim)
			assert.NoError(t, err)
			done <- result
		}()
		synctest.Wait() // it is waiting now
		release()
		assert.Len(t, (<-done).Batch.Messages, 1)
	})
}

// TestClock: SQLite runs in the process, and so does its clock.
func TestClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	store, claim := newStore(t, WithClock(func() time.Time { return now }))
	insert(t, store)
	take := func() []driver.Message {
		result, err := store.Exchange(t.Context(), nil, claim)
		require.NoError(t, err)
		return result.Batch.Messages
	}
	require.Len(t, take(), 1)
	now = now.Add(claim.Lease - time.Microsecond)
	assert.Empty(t, take(), "the lease holds to its last microsecond")
	now = now.Add(time.Microsecond)
	assert.Len(t, take(), 1, "and not longer")
	counts, err := store.Counts(t.Context())
	require.NoError(t, err)
	assert.Positive(t, counts[0].OldestPending)
}

// TestExclusiveForLong: the lock lives as long as its holder, however long that takes.
func TestExclusiveForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newStore(t)
		taken := errors.New("runs although it is taken")
		never := func(context.Context) error { return taken }
		ran, err := store.Exclusive(t.Context(), "purge", func(ctx context.Context) error {
			for range 10 {
				time.Sleep(exclusiveFor) // a bubble's time
				ran, err := store.Exclusive(ctx, "purge", never)
				assert.NoError(t, err)
				assert.False(t, ran)
			}
			return ctx.Err()
		})
		require.NoError(t, err)
		assert.True(t, ran)

		ran, err = store.Exclusive(t.Context(), "purge", func(ctx context.Context) error {
			_, err := store.db.ExecContext(ctx, "UPDATE outbox_messages_locks SET token = 'another process'")
			assert.NoError(t, err)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, errTakenOver)
		assert.True(t, ran)
		ran, err = store.Exclusive(t.Context(), "purge", never)
		require.NoError(t, err)
		assert.False(t, ran, "the other's lock stands")
		time.Sleep(exclusiveFor) // a bubble's time
		ran, err = store.Exclusive(t.Context(), "purge", func(context.Context) error { return nil })
		require.NoError(t, err)
		assert.True(t, ran, "until he is known to be dead")
	})
}

// TestPanicLeavesNoTransaction: a connection never goes back in the middle of a transaction.
func TestPanicLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	store, claim := newStore(t)
	store.db.SetMaxOpenConns(1)
	insert(t, store)
	assert.Panics(t, func() { _ = store.write(t.Context(), func(*sql.Conn) error { panic("boom") }) })
	boom := errors.New("boom")
	require.ErrorIs(t, store.write(t.Context(), func(*sql.Conn) error { return boom }), boom)
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, store.write(ctx, func(*sql.Conn) error { cancel(); return ctx.Err() }), context.Canceled)
	result, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	assert.Len(t, result.Batch.Messages, 1)
}

// TestInMemory: a database in memory has one connection, and Exclusive needs none while it runs.
func TestInMemory(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	store, err := New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()))
	insert(t, store)
	ran, err := store.Exclusive(t.Context(), "x", func(ctx context.Context) error {
		result, err := store.Exchange(ctx, nil, &driver.Claim{Broker: "b", Limit: 10, Window: 10, Lease: time.Hour})
		assert.Len(t, result.Batch.Messages, 1)
		return err
	})
	require.NoError(t, err)
	assert.True(t, ran)
}

// A query that takes too long is cancelled, and the error says so.
func TestBrowseTakesNotForever(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	store.answerTime = time.Nanosecond
	for name, ask := range map[string]func() error{
		"overview": func() error { _, err := store.Overview(t.Context(), 1); return err },
		"list": func() error {
			_, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: outbox.StatusPending, Limit: 1, Scan: 1})
			return err
		},
		"message": func() error { _, err := store.Message(t.Context(), "00000000-0000-0000-0000-000000000001"); return err },
		"blocked": func() error { _, err := store.KeyBlocks(t.Context(), "b", 1, 1); return err },
		"audit":   func() error { _, err := store.Audit(t.Context(), 0, 1); return err },
	} {
		require.ErrorIs(t, ask(), errSlow, name)
	}
	store.answerTime = time.Minute
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := store.Overview(gone, 1)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, errSlow, "the caller gave it up")
}
