package redisconsumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// What is unloaded is bounded, too; and a stop releases all of it.
func TestUnloadedIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
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
}

// An entry that was trimmed while it was unloaded is reported, and its key goes on.
func TestTrimmedWhileUnloaded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
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
