package redisconsumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// A key that fails for long, with far more followers than a consumer has claimed, starves no other
// key of its stream; and when it goes on, its messages are handled in order.
func TestFailingKeyStarvesNoOther(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, s *site) {
		const followers, others = 1000, 20
		for n := range followers {
			s.add(t, "hot", n)
		}
		for n := range others {
			s.add(t, fmt.Sprint("cold-", n%4), followers+n)
		}
		var down atomic.Bool
		down.Store(true)
		l := newLedger()
		r := start(t, s, s.stream, l.handler(func(_ context.Context, m *inbox.Message, _ int) error {
			if down.Load() && strings.HasPrefix(m.OrderingKey, "hot") {
				return inbox.Unavailable(errors.New("what the hot key needs is out"))
			}
			return nil
		}), redisconsumer.Config{ClaimAfter: 2 * time.Second})
		soon(t, "the others are handled", func() bool { return l.len() == others })
		soon(t, "all of the hot key is held", func() bool {
			stats := r.stats(t)
			return stats.Claimed+stats.Unloaded == followers && stats.Claimed <= inbox.DefaultMaxOutstandingMessages
		})
		late := s.add(t, "cold-0", followers+others)
		soon(t, "a later one, too", func() bool { return l.len() == others+1 })
		assert.NotEmpty(t, late)
		down.Store(false)
		soon(t, "the hot key has gone on", func() bool { return l.len() == followers+others+1 })
		soon(t, "all is acknowledged", func() bool { return s.pending(t) == 0 })
		l.check(t, followers+others+1)
		assert.Zero(t, r.stats(t).Unloaded)

		assert.Zero(t, r.stats(t).Lost+r.stats(t).TakenOver)
	})
}

// What is unloaded is bounded, too; and a stop releases all of it.
func TestUnloadedIsBounded(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, s *site) {
		const prefetch = 2
		const most = prefetch + prefetch*64 // what may be unloaded
		s.addAll(t, 1, most+50)
		var j journal
		r := start(t, s, s.stream, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
			return "", inbox.Unavailable(errors.New("out"))
		}), redisconsumer.Config{
			ConsumerConfig: inbox.ConsumerConfig{
				MaxOutstandingMessages: prefetch, Retry: inbox.Retry{BaseDelay: time.Hour, MaxDelay: time.Hour}, Log: j.logger(),
			},
			ClaimAfter: 2 * time.Second,
		})
		soon(t, "it holds all that it may", func() bool {
			stats := r.stats(t)
			return stats.Claimed+stats.Unloaded == most
		})
		soon(t, "it says so", func() bool { return j.lines("level=WARN", "stream not read", s.stream) == 1 })
		assert.Equal(t, most, s.pending(t))
		r.stop(t)
		l := newLedger()
		start(t, s, s.stream, l.handler(nil), redisconsumer.Config{Name: "next"})
		soon(t, "another consumer has handled all", func() bool { return l.len() == most+50 })
		l.check(t, most+50)
	})
}

// An entry that was trimmed while it was unloaded is reported, and its key goes on.
func TestTrimmedWhileUnloaded(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, s *site) {
		var ids []string
		for n := range 10 {
			ids = append(ids, s.add(t, "hot", n))
		}
		s.add(t, "cold", 10)
		var down atomic.Bool
		down.Store(true)
		l := newLedger()
		r := start(t, s, s.stream, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
			if down.Load() && n < 10 {
				return inbox.Unavailable(errors.New("out"))
			}
			return nil
		}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 4}, ClaimAfter: time.Minute})
		soon(t, "the other key is handled", func() bool { return l.len() == 1 })
		require.NoError(t, s.XDel(t.Context(), s.stream, ids[9]).Err())
		down.Store(false)
		soon(t, "the rest is handled", func() bool { return l.len() == 10 && r.stats(t).Trimmed == 1 })
		soon(t, "all is acknowledged", func() bool { return s.pending(t) == 0 })
		l.check(t, 10)
	})
}

// A decoder that has not answered is not asked again about its message when that is unloaded and comes
// again: what it answers is awaited.
func TestUnloadedWhileItsDecoderIsAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const messages, prefetch = 60, 8
	for n := range messages {
		s.add(t, fmt.Sprint(n), n)
	}
	var asked atomic.Int64
	let := make(chan struct{})
	l := newLedger()
	r := start(t, s, s.stream, l.handler(nil), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{
		MaxOutstandingMessages: prefetch, Retry: inbox.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: 50 * time.Millisecond},
		Decoder: func(*inbox.RawMessage) (*envelope.CloudEvent, error) {
			asked.Add(1)
			<-let
			return nil, nil //nolint:nilnil // it is left to the consumer
		},
	}})
	soon(t, "some are unloaded", func() bool { return asked.Load() >= 3*prefetch && r.stats(t).Unloaded > 0 })
	close(let)
	soon(t, "all are done", func() bool { return l.len() == messages && s.pending(t) == 0 })
	l.check(t, messages)
	assert.Equal(t, int64(messages), asked.Load())
}
