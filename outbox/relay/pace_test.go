package relay

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestPace(t *testing.T) {
	t.Parallel()
	const least, most = 20 * time.Millisecond, 100 * time.Millisecond
	p := newPace(&outbox.Policy{PollMin: least, PollMax: most})
	step := func(want time.Duration, found bool, claimed int64, err error, why string) {
		t.Helper()
		next := p.next(found, claimed, err)
		assert.LessOrEqual(t, next, want, why)
		assert.GreaterOrEqual(t, next, time.Duration(float64(want)*(1-pollSpread))-time.Nanosecond, why)
	}
	step(40*time.Millisecond, false, 0, nil, "nothing: twice as long")
	step(80*time.Millisecond, false, 0, nil, "")
	step(most, false, 0, nil, "up to the longest")
	step(most, false, 7, nil, "what wake-ups have brought does not hurry it")
	step(least, true, 7, nil, "a first find: a burst may have begun")
	step(least, true, 9, nil, "it has brought something, so on")
	step(least, false, 12, nil, "the last find has brought something")
	step(40*time.Millisecond, false, 12, nil, "and then nothing")
	step(least, true, 12, nil, "a find")
	step(most, true, 12, nil, "of rows that cannot be claimed: no hurry")
	step(most, true, 12, nil, "however long they stay")
	step(least, true, 13, nil, "until one can")
	step(40*time.Millisecond, true, 14, errors.New("away"), "an error: slower")
	step(80*time.Millisecond, false, 14, errors.New("away"), "")
	step(least, true, 14, nil, "the first find after an outage")
}

// Processes that begin at once do not go on in step.
func TestPaceSpreads(t *testing.T) {
	t.Parallel()
	different := map[time.Duration]bool{}
	for range 20 {
		different[newPace(&outbox.Policy{PollMin: time.Second, PollMax: time.Hour}).next(false, 0, nil)] = true
	}
	assert.Greater(t, len(different), 10)
}

// A look follows rows that were deferred, as soon as that has taken half as long as the look before, and
// goes further each time that it finds nothing.
func TestLookAhead(t *testing.T) {
	t.Parallel()
	var l lookAhead
	assert.Zero(t, l.next(), "nothing waits")
	l.deferred(time.Millisecond)
	assert.Equal(t, 16_000, l.next())
	l.looked(10*time.Millisecond, false)
	assert.Zero(t, l.next(), "nothing was deferred since")
	l.deferred(3 * time.Millisecond)
	assert.Zero(t, l.next(), "it is not its turn")
	l.deferred(2 * time.Millisecond)
	assert.Equal(t, 1_024_000, l.next())
	l.looked(0, true)
	l.deferred(1)
	assert.Equal(t, 1_024_000, l.next(), "far enough")
	l.looked(0, false)
	l.deferred(1)
	assert.Equal(t, maxAhead, l.next(), "no further")
	l.failed(2*time.Millisecond, maxAhead)
	assert.Zero(t, l.next(), "something is to be deferred first")
	l.deferred(time.Millisecond)
	assert.Equal(t, maxAhead/8, l.next(), "it may have been too far")
	l.looked(0, false)
	l.deferred(1)
	assert.Equal(t, maxAhead/8, l.next(), "and stays so")
	l.clear()
	assert.Zero(t, l.next())
	l.deferred(time.Hour)
	assert.Equal(t, minAhead, l.next(), "another head")
}

// What is locked at the head is still so when a claim that looks past it meets none.
func TestALookSaysNothingOfLockedRowsAtTheHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p := &Processor{log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 10 {
			p.lockedSeen(t.Context(), &driver.Claim{Shard: 3}, &driver.Batch{Locked: 2})
			p.lockedSeen(t.Context(), &driver.Claim{Shard: 3, Ahead: 1000}, &driver.Batch{})
			assert.True(t, p.locked.around(3))
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, strings.Count(log.String(), `msg="rows locked by another session"`))
		p.lockedSeen(t.Context(), &driver.Claim{Shard: 3}, &driver.Batch{})
		assert.False(t, p.locked.around(3))
	})
}

// Outages make calls smaller, and what passes makes them larger again, each by half.
func TestSizing(t *testing.T) {
	t.Parallel()
	c := sizing{quick: time.Second}
	var sizes []int
	for range 9 {
		sizes = append(sizes, c.size())
		c.learn(false, c.size(), 0)
	}
	assert.Equal(t, []int{100, 50, 25, 12, 6, 3, 1, 1, 1}, sizes)
	for range 9 {
		c.learn(true, c.size(), time.Hour)
	}
	assert.Equal(t, 100, c.size(), "a broker without a preference gets no more")
}

// Calls that come back quickly grow up to what the broker likes, slow ones shrink to what they
// began with, and an outage ends it.
func TestSizingGrows(t *testing.T) {
	t.Parallel()
	c := sizing{most: 500, quick: time.Second}
	quick, slow, neither := time.Second-1, 2*time.Second, 2*time.Second-1
	for i, step := range []struct {
		available bool
		n         int
		took      time.Duration
		want      int
	}{
		{true, 99, quick, 100}, // not full: it says nothing about larger ones
		{true, 100, neither, 100},
		{true, 100, slow, 100},
		{true, 100, quick, 200},
		{true, 100, quick, 200}, // of another worker, begun before
		{true, 200, quick, 400},
		{true, 400, quick, 500},
		{true, 500, quick, 500},
		{true, 500, neither, 500},
		{true, 500, slow, 400},
		{true, 400, slow, 200},
		{true, 200, quick, 400},
		{false, 400, quick, 50},
		{true, 50, slow, 100},
	} {
		c.learn(step.available, step.n, step.took)
		assert.Equal(t, step.want, c.size(), "step %d", i)
	}
	small := sizing{most: 30, quick: time.Second}
	small.learn(true, 100, 0)
	assert.Equal(t, 100, small.size())
}

// likesMany is a broker that takes large calls.
type likesMany struct{ brokers.Broker }

func (likesMany) Capabilities() brokers.Capabilities { return brokers.Capabilities{MaxBatch: 500} }

// A call grows only where one of twice as many messages would stay well below the publish timeout,
// and be no hindrance to the lease.
func TestSizingKeepsWithinTimeouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lease, timeout, quick time.Duration }{
		{5 * time.Minute, 30 * time.Second, time.Second},
		{5 * time.Minute, time.Second, 250 * time.Millisecond},
		{2 * time.Second, time.Second, 100 * time.Millisecond},
	} {
		calls := newSizing(likesMany{}, &outbox.Policy{Lease: c.lease, PublishTimeout: c.timeout})
		calls.learn(true, 100, c.quick)
		assert.Equal(t, 100, calls.size(), "lease %s, publish timeout %s", c.lease, c.timeout)
		calls.learn(true, 100, c.quick-1)
		assert.Equal(t, 200, calls.size(), "lease %s, publish timeout %s", c.lease, c.timeout)
	}
}

// Where another worker has been faster, the wait is short, whatever the rate: meanwhile rows lie
// about, a pause and a shutdown wait.
func TestThrottleGivesUpALongWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := newThrottle(0.01)
		require.NoError(t, slow.take(t.Context(), 1))
		began := time.Now()
		require.Error(t, slow.take(t.Context(), 1))
		assert.Less(t, time.Since(began), 2*time.Second)
		require.NoError(t, slow.wait(t.Context()), "what was cancelled has taken nothing from the rate")
		assert.InDelta(t, 100, time.Since(began).Seconds(), 0.1)
		require.NoError(t, slow.take(t.Context(), 1))

		quick := newThrottle(1000)
		for range 5 {
			require.NoError(t, quick.take(t.Context(), 100))
		}
	})
}
