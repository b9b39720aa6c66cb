package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/inbox"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// happened counts the effects.
func (p *place) happened() (n int64) {
	p.plain().Table(p.effects()).Count(&n)
	return n
}

// What is redriven while it runs is handled, once, and what fails again is tried again until it
// becomes a dead letter again.
func TestRedeliverer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		var broken atomic.Bool
		broken.Store(true)
		handler := inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
			return inbox.Handle(ctx, p.db, m, func(tx *gorm.DB) error {
				if broken.Load() {
					return errors.New("the bug")
				}
				return p.effect(m)(tx)
			}, p.at())
		})
		m := p.reject()
		log := &lockedBuffer{}
		r, err := inbox.NewRedeliverer(p.db, consumer, handler, inbox.RedeliverConfig{Interval: 5 * time.Millisecond, MaxAttempts: 2, Log: slog.New(slog.NewTextHandler(log, nil))},
			p.at())
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		defer func() {
			stop()
			assert.NoError(t, <-done)
		}()
		redrive := func() {
			n, err := inbox.Redrive(t.Context(), p.db, consumer, "", []uuid.UUID{m.Key}, p.at())
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		}
		redrive()
		dead := func() bool {
			page, err := inbox.DeadLetters(t.Context(), p.db, inbox.DeadLetterFilter{}, p.at())
			return err == nil && len(page) == 1 && page[0].Attempts == 2
		}
		require.Eventually(t, dead, 30*time.Second, 5*time.Millisecond, "it failed twice, and is a dead letter again: %s", log)
		broken.Store(false)
		redrive()
		require.Eventually(t, func() bool { return p.happened() == 1 }, 30*time.Second, 5*time.Millisecond)
		assert.Eventually(t, func() bool { return strings.Contains(log.String(), "redriven messages handled") }, 30*time.Second, 5*time.Millisecond)
		for _, text := range []string{"message failed", "message dead-lettered", "the bug", "redriven messages failed"} {
			assert.Contains(t, log.String(), text)
		}
	})
}

func TestRedelivererRefuses(t *testing.T) {
	t.Parallel()
	_, err := inbox.NewRedeliverer(nil, "", nil, inbox.RedeliverConfig{Interval: -1, MaxAttempts: -1})
	for _, text := range []string{"handle", "consumer", "the handler is nil", "Interval is -1ns", "MaxAttempts is -1: give at least 1, or 0 for 10"} {
		assert.ErrorContains(t, err, text)
	}
	_, err = inbox.NewRedeliverer(on(t, "sqlite").db, consumer, inbox.NewHandlers(nil), inbox.RedeliverConfig{})
	assert.ErrorContains(t, err, "the GORM handle is nil")
}

// A database that fails for an hour is logged when that begins and when it is over, not at each
// poll.
func TestRedelivererDuringAnOutage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "inbox.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := gorm.Open(sqlite.Open(path), &gorm.Config{Logger: logger.Discard})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		defer pool.Close()
		log := &lockedBuffer{}
		handler := inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) { return inbox.Handled, nil })
		r, err := inbox.NewRedeliverer(db, consumer, handler, inbox.RedeliverConfig{Log: slog.New(slog.NewTextHandler(log, nil))})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		count := func(text string) int { return strings.Count(log.String(), text) }
		time.Sleep(time.Hour) // without its table
		assert.Equal(t, 1, count("redriven messages failed"), log)
		assert.Equal(t, 1, count("no such table"))
		_, err = inbox.Migrate(t.Context(), db)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.Equal(t, 1, count("redriven messages fail no more"))
		assert.Equal(t, 1, count("redriven messages failed"))
		stop()
		require.NoError(t, <-done)
	})
}

// A budget beyond what tables can hold is as good as none: failures are counted, and the others have their turn.
func TestHugeBudget(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p *place) {
		failing, other := p.reject(), p.reject()
		_, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
		require.NoError(t, err)
		done, err := inbox.Redeliver(t.Context(), p.db, consumer, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
			m.MaxAttempts = math.MaxInt
			return inbox.Handle(ctx, p.db, m, func(*gorm.DB) error {
				if m.Key == failing.Key {
					return errBoom
				}
				return nil
			}, p.at())
		}), p.at())
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, 1, done)
		assert.Equal(t, "handled", p.row(other).Status)
		assert.Equal(t, 1, p.row(failing).Attempts)
	})
}

// A budget that is none is the handler's mistake: no message becomes a dead letter of it.
func TestNegativeBudget(t *testing.T) {
	t.Parallel()
	p := on(t, "sqlite")
	m := p.reject()
	_, err := inbox.RedriveAll(t.Context(), p.db, consumer, "", p.at())
	require.NoError(t, err)
	_, err = inbox.Redeliver(t.Context(), p.db, consumer, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		m.MaxAttempts = -1
		return "", errBoom
	}), p.at())
	require.ErrorContains(t, err, "Message.MaxAttempts is -1: give at least 1, or 0 for 10")
	assert.True(t, inbox.IsUnavailable(err))
	assert.Equal(t, "redriven", p.row(m).Status)
}
