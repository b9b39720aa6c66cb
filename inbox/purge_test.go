package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/inbox"
)

// age makes the rows of a status older.
func (p *place) age(status string, by time.Duration) {
	p.t.Helper()
	expression := map[string]string{
		"sqlite":    fmt.Sprintf("updated_at - %d", by.Microseconds()),
		"postgres":  fmt.Sprintf("updated_at - %d * interval '1 microsecond'", by.Microseconds()), // one literal holds no hour before PostgreSQL 15
		"mysql":     fmt.Sprintf("updated_at - INTERVAL %d MICROSECOND", by.Microseconds()),
		"sqlserver": fmt.Sprintf("DATEADD(SECOND, -%d, updated_at)", int(by.Seconds())),
	}[p.db.Name()]
	p.exec("UPDATE "+p.table+" SET updated_at = "+expression+" WHERE status = ?", status)
}

// oneOfEach leaves a row of each status.
func (p *place) oneOfEach() {
	p.t.Helper()
	_, err := p.handle(p.message())
	require.NoError(p.t, err)
	_, err = p.handleWith(func(*gorm.DB) error { return errBoom }, p.message())
	require.Error(p.t, err)
	p.reject()
	_, err = inbox.RedriveAll(p.t.Context(), p.db, consumer, "", p.at())
	require.NoError(p.t, err)
	p.reject()
	p.expect(p.message())
}

func (p *place) purger(cfg inbox.PurgeConfig) *inbox.Purger {
	p.t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	purger, err := inbox.NewPurger(p.db, cfg, p.at())
	require.NoError(p.t, err)
	return purger
}

// Each status has its own window.
func TestPurge(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		p.oneOfEach()
		purge := func(want inbox.Purged) {
			t.Helper()
			got, err := p.purger(inbox.PurgeConfig{Handled: time.Hour, DeadLetters: 2 * time.Hour, Expected: 3 * time.Hour}).Purge(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		purge(inbox.Purged{})
		all := []string{"handled", "failed", "dead_letter", "redriven", "expected"}
		older := func(by time.Duration) {
			for _, status := range all {
				p.age(status, by)
			}
		}
		older(61 * time.Minute)
		purge(inbox.Purged{Handled: 1})
		older(time.Hour)
		purge(inbox.Purged{Failed: 1, DeadLetters: 1, Redriven: 1})
		older(time.Hour)
		purge(inbox.Purged{Expected: 1})
		require.Zero(t, p.rows())
	})
}

// Rows go in bounded batches, and two purgers share the work.
func TestPurgeBatches(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		const all = 95
		for range all {
			_, err := p.handle(p.message())
			require.NoError(t, err)
		}
		p.age("handled", 2*time.Hour)
		_, err := p.handle(p.message())
		require.NoError(t, err)
		var (
			mu    sync.Mutex
			total inbox.Purged
			group sync.WaitGroup
		)
		for range 2 {
			purger := p.purger(inbox.PurgeConfig{Handled: time.Hour, BatchSize: 10, OnReport: func(_ context.Context, report inbox.Purged) {
				mu.Lock()
				defer mu.Unlock()
				total.Handled += report.Handled
			}})
			group.Go(func() {
				_, err := purger.Purge(t.Context())
				assert.NoError(t, err)
			})
		}
		group.Wait()
		left := p.rows() // one of them may have passed over what the other one was about to remove, and removed
		require.Equal(t, all+1, int(total.Handled)+left)
		_, err = p.purger(inbox.PurgeConfig{Handled: time.Hour, BatchSize: 10}).Purge(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, p.rows())
	})
}

// What an operator is about to redrive is passed over, and stays once it is redriven.
func TestPurgePassesOverWhatIsLocked(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		if name := p.db.Name(); name == "sqlite" || name == "sqlserver" {
			t.Skip("SQLite locks no rows, and SQL Server has another syntax for it")
		}
		held, other := p.reject(), p.reject()
		p.age("dead_letter", 1000*time.Hour)
		tx := p.db.Begin()
		defer tx.Rollback()
		var keys []string
		require.NoError(t, tx.Table(p.table).Clauses(clause.Locking{Strength: "UPDATE"}).
			Where("consumer = ? AND message_id = ? AND source = ?", consumer, p.id(held), held.Source).Pluck("status", &keys).Error)
		report, err := p.purger(inbox.PurgeConfig{}).Purge(t.Context())
		require.NoError(t, err)
		require.Equal(t, inbox.Purged{DeadLetters: 1}, report)
		require.NotNil(t, p.row(held))
		require.Nil(t, p.row(other))
	})
}

func TestNewPurgerRefuses(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	_, err := inbox.NewPurger(p.db, inbox.PurgeConfig{Handled: -1, Interval: -time.Hour, BatchSize: -1}, inbox.WithTable("a b"))
	require.ErrorContains(t, err, "Handled is -1ns")
	require.ErrorContains(t, err, "Interval is -1h0m0s")
	require.ErrorContains(t, err, "BatchSize is -1")
	require.ErrorContains(t, err, `table name "a b"`)
}

// The first run comes after a minute, the next ones after the interval, whatever becomes of them;
// and Run ends with its context.
func TestPurgerRun(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	p.oneOfEach()
	p.age("handled", 1000*time.Hour)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		var removed int64
		purger := p.purger(inbox.PurgeConfig{Interval: 10 * time.Minute, OnReport: func(_ context.Context, report inbox.Purged) {
			at = append(at, time.Since(began))
			removed += report.Total()
			if len(at) == 3 {
				cancel()
			}
		}})
		require.NoError(t, purger.Run(ctx))
		require.Equal(t, []time.Duration{time.Minute, 11 * time.Minute, 21 * time.Minute}, at)
		require.EqualValues(t, 1, removed)
	})
}

// An error is reported with what was removed before.
func TestPurgeFails(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	p.oneOfEach()
	p.age("handled", 1000*time.Hour)
	p.age("failed", 1000*time.Hour)
	p.exec("CREATE TRIGGER refuse BEFORE DELETE ON " + p.table + " WHEN old.status = 'failed' BEGIN SELECT raise(ABORT, 'not now'); END")
	report, err := p.purger(inbox.PurgeConfig{}).Purge(t.Context())
	require.ErrorContains(t, err, "inbox: purge failed rows of "+p.table+": ")
	require.ErrorContains(t, err, "not now")
	require.Equal(t, inbox.Purged{Handled: 1}, report)
}
