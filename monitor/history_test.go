package monitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

func value(t *testing.T, n *float64) float64 {
	t.Helper()
	require.NotNil(t, n)
	return *n
}

func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := (&fake{}).add(3, func(int, *admin.Record) {})
		begin := time.Now()
		h := newHandler(t, store, func(cfg *Config) {
			cfg.Stats = func() []relay.Stats { // 40 are published in a second, and 10 retried
				seconds := int64(time.Since(begin) / time.Second)
				return []relay.Stats{{Database: "main", Broker: "default", Published: 40 * seconds, Retried: 10 * seconds, Breaker: relay.BreakerClosed}}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()

		time.Sleep(time.Minute + time.Millisecond)
		history := decoded[historyAnswer](t, call(h, "GET", "/api/outbox/history", "", as(viewerToken)))
		require.Len(t, history.Series, 1)
		one := history.Series[0]
		require.Len(t, one.PublishedPerSecond, historySamples)
		last := historySamples - 1
		assert.InDelta(t, 40, value(t, one.PublishedPerSecond[last]), 1e-9)
		assert.InDelta(t, 10, value(t, one.FailedPerSecond[last]), 1e-9)
		assert.InDelta(t, 3, value(t, one.Pending[last]), 0)
		assert.InDelta(t, 1, value(t, one.LagSeconds[last]), 0)
		for i := range 30 {
			assert.NotNil(t, one.PublishedPerSecond[last-i-0], i)
		}
		assert.Nil(t, one.PublishedPerSecond[last-30], "the first sample has none before it")
		assert.NotNil(t, one.Pending[last-30])
		assert.Nil(t, one.Pending[last-31])

		broker := decoded[map[string]databaseAnswer](t, call(h, "GET", "/api/outbox", "", as(viewerToken)))["main"].Brokers["default"]
		assert.InDelta(t, 40, value(t, broker.PublishedPerSecond), 1e-9)
		assert.InDelta(t, 0.2, value(t, broker.RetryRate), 1e-9)
		assert.Equal(t, relay.BreakerClosed, broker.Breaker)

		time.Sleep(time.Hour)
		h.history.mu.Lock()
		assert.LessOrEqual(t, len(h.history.samples[series{"main", "default"}]), historySamples)
		h.history.mu.Unlock()
		cancel()
		require.NoError(t, <-done)
	})
}

// Where no engine runs here, the database tells how fast rows are published, and nobody knows what
// was retried.
func TestHistoryOfTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fake{}
		h := newHandler(t, store)
		add := func(n int, apart time.Duration) {
			store.add(n, func(i int, r *admin.Record) {
				r.Status, r.FinishedAt = outbox.StatusPublished, time.Now().Add(-time.Duration(i)*apart)
			})
		}
		rate := func() float64 {
			h.sample(t.Context())
			broker := decoded[map[string]databaseAnswer](t, call(h, "GET", "/api/outbox", "", as(viewerToken)))["main"].Brokers["default"]
			assert.Nil(t, broker.RetryRate)
			assert.Empty(t, broker.Breaker)
			return value(t, broker.PublishedPerSecond)
		}
		add(50, 100*time.Millisecond)
		assert.InDelta(t, 5, rate(), 1e-9, "50 in the window of 10 s")
		time.Sleep(time.Hour)
		assert.Zero(t, rate())
		add(1000, time.Millisecond)
		time.Sleep(2 * time.Second)
		assert.InDelta(t, 1000, rate(), 10, "200 in 199 ms")
	})
}

// Rows that are not kept tell nothing of how fast a broker is: that is not known, which is not 0.
func TestHistoryOfRowsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := (&fake{}).add(3, func(_ int, r *admin.Record) { r.Status = outbox.StatusPending })
		h := newHandler(t, store, func(cfg *Config) { cfg.Console = consoleOf(store, WithNotKept("default")) })
		h.sample(t.Context())
		broker := decoded[map[string]databaseAnswer](t, call(h, "GET", "/api/outbox", "", as(viewerToken)))["main"].Brokers["default"]
		assert.Nil(t, broker.PublishedPerSecond)
		assert.True(t, broker.NotKept)
	})
}

// The database is asked at each sample only while an operator looks.
func TestSamplesAreSeldomUnlessWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		store := (&fake{overview: func(*admin.BrokerOverview) { asked++ }}).add(1, func(int, *admin.Record) {})
		h := newHandler(t, store, func(cfg *Config) { cfg.Stats = func() []relay.Stats { return nil } })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()
		time.Sleep(time.Minute + time.Second)
		store.mu.Lock()
		assert.Equal(t, 7, asked, "every ten seconds")
		store.mu.Unlock()
		call(h, "GET", "/api/outbox/history", "", as(viewerToken))
		time.Sleep(30 * time.Second)
		store.mu.Lock()
		assert.Equal(t, 7+15, asked, "every two seconds")
		store.mu.Unlock()
		cancel()
		require.NoError(t, <-done)
	})
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := newHistory()
	stats := map[series]*relay.Stats{}
	for i := range 2 * maxSeries {
		stats[series{"d", string(rune('a' + i))}] = &relay.Stats{}
	}
	for i := range 2 * historySamples {
		h.add(start.Add(time.Duration(i)*sampleEvery), stats)
	}
	assert.Len(t, h.samples, maxSeries)
	for _, list := range h.samples {
		assert.LessOrEqual(t, len(list), historySamples)
	}
	h.add(start.Add(24*time.Hour), nil)
	assert.Empty(t, h.samples, "what is old is forgotten")
}
