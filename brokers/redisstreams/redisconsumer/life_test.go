package redisconsumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

func TestFromNow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addAll(t, 1, 10)
	l := newLedger()
	r := start(t, s, s.stream, l.handler(nil), redisconsumer.Config{NewOnly: true})
	soon(t, "the group is there", func() bool { return s.pending(t) == 0 })
	s.addAllFrom(t, 1, 10, 10)
	soon(t, "what came after is handled", func() bool { return l.len() == 10 })
	soon(t, "and acknowledged", func() bool { return s.pending(t) == 0 }) // what is claimed is not handled twice
	require.NoError(t, s.XGroupDestroy(t.Context(), s.stream, group).Err())
	s.addAllFrom(t, 1, 20, 1)
	soon(t, "the group is created again where it began", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.times[20] == 1 && l.times[10] == 2
	})
	l.mu.Lock()
	assert.Zero(t, l.times[9], "messages older than the group stay out")
	l.mu.Unlock()
	assert.Positive(t, r.stats(t).Recreated)
}

// What is claimed is bounded, and so is what is handled at once.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addAll(t, 100, 100)
	release := make(chan struct{})
	var under, most atomic.Int64
	l := newLedger()
	r := start(t, s, s.stream, l.handler(func(context.Context, *inbox.Message, int) error {
		now := under.Add(1)
		defer under.Add(-1)
		for {
			before := most.Load()
			if now <= before || most.CompareAndSwap(before, now) {
				break
			}
		}
		<-release
		return nil
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 3, MaxOutstandingMessages: 10}})
	soon(t, "it has what it may have", func() bool { return under.Load() == 3 && r.stats(t).Claimed == 10 })
	assert.Equal(t, 10, s.pending(t))
	assert.Equal(t, int64(90), r.stats(t).Lag)
	release <- struct{}{}
	soon(t, "one more for one less", func() bool { return r.stats(t).Handled == 1 && s.pending(t) == 10 })
	close(release)
	soon(t, "all handled", func() bool { return l.len() == 100 })
	assert.Equal(t, int64(3), most.Load())
}

// A consumer stops while a message is handled. Others get at once what waits for a worker, but not
// what stands behind that message: its key would be handled twice at once, and out of order.
func TestStopKeepsWhatWaitsForItsKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(t, "a", 0)
	s.add(t, "a", 1)
	s.add(t, "b", 2)
	inside, release := make(chan struct{}), make(chan struct{})
	l := newLedger()
	stopping := start(t, s, s.stream, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		if n == 0 {
			close(inside)
			<-release
		}
		return nil
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 1, ShutdownTimeout: time.Minute}})
	<-inside
	soon(t, "all are claimed", func() bool { return stopping.stats(t).Claimed == 3 })
	stopping.cancel()
	other := start(t, s, s.stream, l.handler(nil))
	soon(t, "what waits for a worker is handled", func() bool { return l.len() > 0 })
	soon(t, "and nothing else is claimed", func() bool { return other.stats(t).Claimed == 0 })
	close(release)
	soon(t, "all handled", func() bool { return l.len() == 3 })
	soon(t, "nothing is pending", func() bool { return s.pending(t) == 0 })
	l.check(t, 3)
}

// Isolated messages that fail, or that have to wait for something, are tried again alone, after
// their pause, until their attempts are over.
func TestIsolatedThatFail(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addAll(t, 4, 4)
	s.readDead(t, 4)
	for _, row := range s.rows(t) {
		s.claimDead(t, row.ID, 3)
	}
	var attempts [4]atomic.Int64
	var under atomic.Int64
	l := newLedger()
	r := start(t, s, s.stream, l.handler(func(_ context.Context, m *inbox.Message, n int) error {
		assert.Equal(t, int64(1), under.Add(1))
		defer under.Add(-1)
		try := attempts[n].Add(1)
		switch n {
		case 0:
			assert.Equal(t, 3+int(try), m.Deliveries)
			return errors.New("no")
		case 1:
			assert.Equal(t, 4, m.Deliveries, "it is not charged")
			if try < 12 {
				return inbox.Unavailable(errors.New("not now"))
			}
		case 2:
			return inbox.Permanent(errors.New("never"))
		}
		return nil
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Retry: inbox.Retry{MaxAttempts: 6, BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond}}})
	soon(t, "nothing is pending", func() bool { return s.pending(t) == 0 })
	assert.Equal(t, 2, l.len())
	assert.Equal(t, int64(3), attempts[0].Load(), "three deaths and three failures")
	assert.Equal(t, int64(12), attempts[1].Load())
	reasons := map[any]any{}
	for _, letter := range s.dead(t) {
		reasons[letter.Values[inbox.FieldDeadLetterReason]] = letter.Values[inbox.FieldDeadLetterAttempts]
	}
	assert.Equal(t, map[any]any{"no": "6", "never": "4"}, reasons)
	assert.Equal(t, int64(2), r.stats(t).Forwarded)
}

// While an isolated message is handled, what was claimed before is nobody's, keeps its order, and
// goes on afterwards; in the meantime nobody is charged.
func TestOthersWaitForTheIsolated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(t, "isolated", 0)
	s.readDead(t, 1)
	s.addAllFrom(t, 3, 1, 30)
	out := atomic.Bool{}
	out.Store(true)
	inside, release := make(chan struct{}), make(chan struct{})
	l := newLedger()
	r := start(t, s, s.stream, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		switch {
		case n == 0:
			close(inside)
			<-release
		case out.Load():
			return inbox.Unavailable(errors.New("not now"))
		}
		return nil
	}))
	soon(t, "the others are claimed", func() bool { return r.stats(t).Claimed == 30 })
	s.claimDead(t, s.rows(t)[0].ID, 3)
	<-inside
	rows := s.rows(t)
	require.Len(t, rows, 31)
	for _, row := range rows[1:] {
		assert.Zero(t, row.RetryCount)
		assert.GreaterOrEqual(t, row.Idle, 400*time.Millisecond, "another member may claim it")
	}
	assert.Equal(t, int64(4), rows[0].RetryCount)
	out.Store(false)
	close(release)
	soon(t, "all handled", func() bool { return l.len() == 31 })
	soon(t, "nothing is pending", func() bool { return s.pending(t) == 0 })
	l.check(t, 31)
	assert.Zero(t, r.stats(t).Lost)
}

// The lag is known exactly, or said to be unknown.
func TestLag(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, err := redisconsumer.NewConsumer(s, group, []string{s.stream}, newLedger().handler(nil), quick())
	require.NoError(t, err)
	all, err := c.Streams(t.Context())
	require.ErrorContains(t, err, fmt.Sprintf("%q", s.stream), "there is no stream yet")
	require.Len(t, all, 1)
	assert.False(t, all[0].LagKnown)
	require.NoError(t, s.XGroupCreateMkStream(t.Context(), s.stream, "another", "0").Err())
	_, err = c.Streams(t.Context())
	require.ErrorContains(t, err, "NOGROUP")

	s.addAll(t, 1, 150)
	stats := func() redisconsumer.StreamStats {
		all, err := c.Streams(t.Context())
		require.NoError(t, err)
		return all[0]
	}
	require.NoError(t, s.XGroupCreate(t.Context(), s.stream, group, "0").Err())
	got := stats()
	assert.True(t, got.LagKnown, "nothing was delivered")
	assert.Equal(t, int64(150), got.Lag)
	s.readDead(t, 1)
	got = stats()
	assert.Equal(t, int64(1), got.Pending)
	assert.Less(t, got.OldestPending, time.Minute)
	assert.Equal(t, s.rows(t)[0].ID, got.LastDelivered)
	if got.LagKnown { // from Redis 7 on
		assert.Equal(t, int64(149), got.Lag)
	}
	entries, err := s.XRange(t.Context(), s.stream, "-", "+").Result()
	require.NoError(t, err)
	require.NoError(t, s.XDel(t.Context(), s.stream, entries[75].ID).Err())
	assert.False(t, stats().LagKnown, "the server does not know it after a deletion out of the middle")
	s.readDead(t, 48)
	got = stats()
	assert.True(t, got.LagKnown, "at most a hundred are counted")
	assert.Equal(t, int64(100), got.Lag)
	s.readDead(t, 100)
	got = stats()
	assert.True(t, got.LagKnown)
	assert.Zero(t, got.Lag)
	assert.Equal(t, int64(149), got.Pending)

	add := func(size int) string {
		id, err := s.XAdd(t.Context(), &redis.XAddArgs{Stream: s.stream, Values: []any{"note", strings.Repeat("x", size)}}).Result()
		require.NoError(t, err)
		return id
	}
	deleted := add(1)
	add(1 << 19)
	add(1 << 18)
	require.NoError(t, s.XDel(t.Context(), s.stream, deleted).Err())
	got = stats()
	assert.True(t, got.LagKnown)
	assert.Equal(t, int64(2), got.Lag)
	add(1 << 18)
	assert.False(t, stats().LagKnown, "the server would read more than a megabyte to count them")
}
