package redisconsumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// readDead has another consumer of the group read n entries and fall silent.
func (s *site) readDead(t *testing.T, n int) {
	t.Helper()
	err := s.XGroupCreateMkStream(t.Context(), s.stream, group, "0").Err()
	if err != nil {
		require.ErrorContains(t, err, "BUSYGROUP")
	}
	require.NoError(t, s.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "dead", Streams: []string{s.stream, ">"}, Count: int64(n)}).Err())
}

// A stop releases what it does not finish, and others get it at once.
func TestStopGivesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addAll(t, 40, 40)
	hang := make(chan struct{})
	l := newLedger()
	first := start(t, s, s.stream, inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
		select {
		case hang <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{ShutdownTimeout: 50 * time.Millisecond}, ClaimAfter: time.Minute})
	<-hang
	soon(t, "it has all", func() bool { return s.pending(t) == 40 })
	first.stop(t)
	rows, err := s.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: s.stream, Group: group, Start: "-", End: "+", Count: 100}).Result()
	require.NoError(t, err)
	require.Len(t, rows, 40)
	for _, row := range rows {
		assert.Zero(t, row.RetryCount, "no attempt is charged")
		assert.GreaterOrEqual(t, row.Idle, time.Minute)
	}
	second := start(t, s, s.stream, l.handler(nil), redisconsumer.Config{ClaimAfter: time.Minute})
	soon(t, "the next one has them at once", func() bool { return l.len() == 40 })
	soon(t, "all acknowledged", func() bool { return s.pending(t) == 0 })
	assert.Equal(t, int64(40), second.stats(t).TakenOver)
	l.check(t, 40)
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(t, "a", 0)
	foreign, err := s.XAdd(t.Context(), &redis.XAddArgs{Stream: s.stream, Values: []any{"some", "thing", "else", "x"}}).Result()
	require.NoError(t, err)
	_, err = s.XAdd(t.Context(), &redis.XAddArgs{Stream: s.stream, Values: []any{"data", "{", "id", "7"}}).Result()
	require.NoError(t, err)
	s.add(t, "a", 1)
	s.add(t, "a", 2)
	var heal atomic.Bool
	l := newLedger()
	o := &observer{}
	r := start(t, s, s.stream, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		if n == 1 && !heal.Load() {
			return errors.New("it does not like ones")
		}
		return nil
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Retry: inbox.Retry{MaxAttempts: 3, BaseDelay: time.Millisecond}, Observer: o}})
	soon(t, "the rest of the key goes on", func() bool { return l.len() == 2 })
	soon(t, "nothing is pending", func() bool { return s.pending(t) == 0 })
	letters := s.dead(t)
	require.Len(t, letters, 3)
	assert.Equal(t, int64(3), r.stats(t).Forwarded)
	assert.Equal(t, int64(3), o.dead.Load())
	for _, letter := range letters {
		v := letter.Values
		assert.Equal(t, group, v[inbox.FieldDeadLetterConsumer])
		assert.Equal(t, s.stream, v[inbox.FieldDeadLetterSource])
		switch {
		case v[inbox.FieldDeadLetterPosition] == foreign:
			assert.Contains(t, v[inbox.FieldDeadLetterReason], "no field")
			assert.Equal(t, "thing", v["some"])
			assert.Equal(t, "0", v[inbox.FieldDeadLetterAttempts])
		case v["data"] == "{":
			assert.Equal(t, "7", v["id"])
		default:
			assert.Equal(t, "it does not like ones", v[inbox.FieldDeadLetterReason])
			assert.Equal(t, "3", v[inbox.FieldDeadLetterAttempts])
		}
	}

	heal.Store(true)
	n, err := redisconsumer.ResendDeadLetters(t.Context(), s, redisconsumer.DeadStream(s.stream, group), nil, 100)
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	soon(t, "the good one is handled", func() bool { return l.len() == 3 })
	soon(t, "nothing is pending again", func() bool { return s.pending(t) == 0 })
	soon(t, "the others come back", func() bool { return len(s.dead(t)) == 2 })
	for _, letter := range s.dead(t) {
		assert.Len(t, letter.Values, 2+5, "what was added is not added twice: %v", letter.Values)
	}
}

type observer struct{ begun, ended, dead atomic.Int64 }

func (o *observer) Begin(ctx context.Context, _ *inbox.Message) context.Context {
	o.begun.Add(1)
	return ctx
}
func (o *observer) End(context.Context, *inbox.Attempt)                    { o.ended.Add(1) }
func (o *observer) Forwarded(_ context.Context, _ *inbox.Message, _ error) { o.dead.Add(1) }

// Entries that many processes had claimed when they died are handled one at a time, with nothing
// else claimed.
func TestCrashedAreAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addAll(t, 6, 6)
	s.readDead(t, 6)
	rows, err := s.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: s.stream, Group: group, Start: "-", End: "+", Count: 100}).Result()
	require.NoError(t, err)
	for _, row := range rows[1:] {
		s.claimDead(t, row.ID, 3)
	}
	s.claimDead(t, rows[0].ID, 4) // it killed again when it was alone
	for n := 6; n < 60; n++ {
		s.add(t, fmt.Sprint(n), n)
	}
	l := newLedger()
	var under, most atomic.Int64
	r := start(t, s, s.stream, l.handler(func(_ context.Context, m *inbox.Message, n int) error {
		now := under.Add(1)
		defer under.Add(-1)
		most.Store(max(most.Load(), now))
		if n < 6 {
			assert.Equal(t, int64(1), now, "alone")
			assert.Equal(t, 4, m.Deliveries)
			others := 0
			for _, row := range s.rows(t) {
				if row.ID != m.Position && row.Idle < 400*time.Millisecond {
					others++
				}
			}
			assert.Zero(t, others, "nothing else is claimed")
		}
		return nil
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Retry: inbox.Retry{MaxAttempts: 3}}})
	soon(t, "all but the poison are handled", func() bool { return l.len() == 59 })
	soon(t, "nothing is pending", func() bool { return s.pending(t) == 0 })
	letters := s.dead(t)
	require.Len(t, letters, 1)
	assert.Contains(t, letters[0].Values[inbox.FieldDeadLetterReason], "delivered 4 times")
	assert.Equal(t, rows[0].ID, letters[0].Values[inbox.FieldDeadLetterPosition])
	assert.Equal(t, int64(1), r.stats(t).Forwarded)
	l.check(t, 59)
}

func (s *site) rows(t *testing.T) []redis.XPendingExt {
	t.Helper()
	rows, err := s.XPendingExt(context.Background(), &redis.XPendingExtArgs{Stream: s.stream, Group: group, Start: "-", End: "+", Count: 1000}).Result()
	require.NoError(t, err)
	return rows
}

// claimDead has the dead consumer have an entry that was delivered so often, long ago.
func (s *site) claimDead(t *testing.T, id string, count int) {
	t.Helper()
	require.NoError(t, s.Do(t.Context(), "XCLAIM", s.stream, group, "dead", 0, id, "IDLE", 3600_000, "RETRYCOUNT", count, "JUSTID").Err())
}

// The names of processes that died do not pile up.
func TestTidiesUpAfterTheDead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addAll(t, 1, 2)
	s.readDead(t, 2)
	l := newLedger()
	r := start(t, s, s.stream, l.handler(nil), redisconsumer.Config{ClaimAfter: 100 * time.Millisecond})
	soon(t, "all handled", func() bool { return l.len() == 2 })
	assert.Equal(t, int64(2), r.stats(t).Members)
	soon(t, "it is removed", func() bool { return r.stats(t).Members == 1 })
}
