package cleanup_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// open makes an outbox in a file; its clock is that of the test's bubble.
func open(t *testing.T, path string) (*sql.DB, *sqlite.Store) {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	return db, store
}

func insert(t *testing.T, db *sql.DB, broker string, status outbox.Status, age time.Duration) {
	t.Helper()
	finished := sql.NullInt64{Int64: time.Now().Add(-age).UnixMicro(), Valid: status.Terminal()}
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, status, finished_at, published_at, created_at)
		VALUES (?1, ?2, 's', 'T', x'', ?3, ?4, CASE WHEN ?3 = 'published' THEN ?4 END, ?5)`, uuid.NewString(), broker, string(status), finished, time.Now().Add(-age).UnixMicro())
	require.NoError(t, err)
}

func count(t *testing.T, db *sql.DB, where string) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_messages WHERE "+where).Scan(&n))
	return n
}

const day = 24 * time.Hour

func TestPurge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		db, store := open(t, path)
		defer db.Close()
		for range 25 {
			insert(t, db, "a", outbox.StatusPublished, 7*day+time.Second)
			insert(t, db, "removed from the configuration", outbox.StatusPublished, 8*day)
			insert(t, db, "a", outbox.StatusAbandoned, 8*day)
		}
		insert(t, db, "a", outbox.StatusPublished, 7*day-time.Second)
		insert(t, db, "a", outbox.StatusAbandoned, 30*day+time.Second)
		insert(t, db, "keeps", outbox.StatusPublished, 8*day)
		insert(t, db, "a", outbox.StatusPending, 0)
		var told []cleanup.Report
		scheduler, err := cleanup.New(cleanup.Config{
			Databases: map[string]cleanup.Table{"d": store}, BatchSize: 10, Log: slog.New(slog.DiscardHandler),
			Brokers:  map[string]cleanup.Retention{"keeps": {Published: 9 * day}},
			OnReport: func(_ context.Context, report cleanup.Report) { told = append(told, report) },
		})
		require.NoError(t, err)
		reports, err := scheduler.Purge(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []cleanup.Report{{Database: "d", Published: 50, Abandoned: 1}}, reports)
		assert.Equal(t, 1, count(t, db, "status = 'published' AND target_broker = 'a'"))
		assert.Equal(t, 25, count(t, db, "status = 'abandoned'"))
		assert.Equal(t, 1, count(t, db, "target_broker = 'keeps'"))
		assert.Equal(t, 1, count(t, db, "status = 'pending'"))

		// Another process purges.
		ran, err := store.Exclusive(t.Context(), "cleanup", func(ctx context.Context) error {
			reports, err := scheduler.Purge(ctx)
			assert.Equal(t, []cleanup.Report{{Database: "d", Skipped: true}}, reports)
			return err
		})
		require.NoError(t, err)
		assert.True(t, ran)
		assert.Equal(t, []cleanup.Report{{Database: "d", Published: 50, Abandoned: 1}, {Database: "d", Skipped: true}}, told)
	})
}

// While the delivery is behind and comes forward, a run removes one batch every five seconds, and still
// comes to an end. What no relay delivers slows it down once.
func TestPurgeGivesWay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		db, store := open(t, path)
		defer db.Close()
		scheduler, err := cleanup.New(cleanup.Config{
			Databases: map[string]cleanup.Table{"d": store}, BatchSize: 10, MaxLag: time.Minute, Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		purge := func(ctx context.Context) (published int, took time.Duration, err error) {
			for range 60 - count(t, db, "status = 'published' AND target_broker = 'a'") {
				insert(t, db, "a", outbox.StatusPublished, 8*day)
			}
			started := time.Now()
			reports, err := scheduler.Purge(ctx)
			return reports[0].Published, time.Since(started), err
		}
		check := func(want time.Duration, why string) {
			t.Helper()
			published, took, err := purge(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 60, published)
			assert.Equal(t, want, took, why)
		}
		check(0, "nothing waits")
		insert(t, db, "down", outbox.StatusPending, 0)
		time.Sleep(30 * time.Second)
		check(0, "nothing waits for long")
		time.Sleep(time.Hour)
		check(5*time.Second, "no relay delivers that: it was given time once")
		time.Sleep(time.Hour)
		check(0, "and still none does")

		// Of a backlog one row is delivered each second, in the order of its age.
		for n := range 200 {
			insert(t, db, "slow", outbox.StatusPending, time.Hour-time.Duration(n)*time.Second)
		}
		ctx, stop := context.WithCancel(t.Context())
		var over sync.WaitGroup
		over.Go(func() {
			for sleep(ctx, time.Second) {
				_, err := db.ExecContext(t.Context(), `UPDATE outbox_messages SET status = 'published', published_at = created_at, finished_at = created_at
					WHERE id = (SELECT min(id) FROM outbox_messages WHERE target_broker = 'slow' AND status = 'pending')`)
				assert.NoError(t, err)
			}
		})
		check(30*time.Second, "it comes forward all the time")
		bounded, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		published, _, err := purge(bounded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 20, published, "what is removed stays removed; the next run goes on")
		time.Sleep(time.Minute)
		stop()
		over.Wait()
		check(5*time.Second, "no relay delivers that any more")
		check(0, "nor now")
	})
}

// dragging is a table beside an old transaction: what waits in it takes long to count.
type dragging struct {
	cleanup.Table

	asked int
}

func (d *dragging) Purge(ctx context.Context, request admin.PurgeRequest) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return d.Table.Purge(ctx, request)
}

func (d *dragging) Backlog(ctx context.Context) ([]admin.Backlog, error) {
	d.asked++
	time.Sleep(time.Second)
	return d.Table.Backlog(ctx)
}

// A tenth of a run goes into the question how far delivery lags, however long an answer takes.
func TestPurgeAsksLessWhereThatTakesLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		db, store := open(t, path)
		defer db.Close()
		table := &dragging{Table: store}
		scheduler, err := cleanup.New(cleanup.Config{Databases: map[string]cleanup.Table{"d": table}, BatchSize: 1, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		for range 500 {
			insert(t, db, "a", outbox.StatusPublished, 8*day)
		}
		began := time.Now()
		reports, err := scheduler.Purge(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 500, reports[0].Published)
		assert.Equal(t, 5, table.asked)
		assert.Less(t, time.Since(began), time.Minute) // of the bubble's clock
	})
}

// sleep returns false when ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// The scheduler runs again and again, and an error of one run does not end it.
func TestSchedule(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		db, store := open(t, path)
		defer db.Close()
		var log bytes.Buffer
		scheduler, err := cleanup.New(cleanup.Config{
			Databases: map[string]cleanup.Table{"d": store}, Retention: cleanup.Retention{Published: day}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- scheduler.Run(ctx) }()
		insert(t, db, "a", outbox.StatusPublished, 0)
		_, err = db.ExecContext(t.Context(), "ALTER TABLE outbox_messages RENAME TO hidden")
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		_, err = db.ExecContext(t.Context(), "ALTER TABLE hidden RENAME TO outbox_messages")
		require.NoError(t, err)
		time.Sleep(22 * time.Hour)
		assert.Equal(t, 1, count(t, db, "true"))
		time.Sleep(3 * time.Hour)
		assert.Zero(t, count(t, db, "true"))
		stop()
		require.NoError(t, <-done)
		assert.Contains(t, log.String(), "purge failed")
		assert.Regexp(t, `published=1 abandoned=0 took="?[0-9.]+(s|ms|µs)`, log.String())
	})
}

func TestNewReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := cleanup.New(cleanup.Config{
		Interval: -1, BatchSize: -1, MaxLag: -1, Retention: cleanup.Retention{Published: -1, Abandoned: -1},
		Brokers: map[string]cleanup.Retention{"b": {Abandoned: -1}},
	})
	for _, text := range []string{"interval", "published_retention", "abandoned_retention", "max_lag", `broker "b": retention.abandoned`, "batch_size"} {
		require.ErrorContains(t, err, text)
	}
}
