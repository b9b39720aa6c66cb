package pubsubconsumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// All messages of all keys are handled once, in the order of their key, although many fail at
// first.
func TestOrderAcrossFailures(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for k := range 5 {
		s.publish(fmt.Sprint("k", k), 20)
	}
	s.publish("", 20)
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, it seen, time int) (inbox.Outcome, error) {
		switch {
		case it.n%7 == 3 && time == 1:
			return "", errors.New("no")
		case it.n%7 == 4 && time == 1:
			panic("no")
		case it.n%7 == 5 && time < 6:
			return "", inbox.Unavailable(errors.New("out"))
		case it.n == 6 && time == 1:
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return inbox.Handled, nil
	})
	p := start(t, newClient(t, s.Addr), l, WithTimeout(time.Second))
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	require.NoError(t, p.stop())
	assert.Len(t, l.finished(), 120)
	stats := p.Stats()
	assert.Equal(t, int64(120), stats.Handled)
	assert.Equal(t, int64(6*(3+3+5*3+1)), stats.Failed)
	assert.Zero(t, stats.Nacked)
	assert.Zero(t, stats.Claimed)
	order := map[string]int{}
	for _, it := range l.finished() {
		if it.key != "" {
			assert.Equal(t, order[it.key], it.n, "key %s", it.key)
			order[it.key]++
		}
	}
}

// A message is confirmed after its handler is done, and not before.
func TestConfirmedAfterwards(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 3)
	let := make(chan struct{})
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it.n == 1 {
			select {
			case <-let:
			case <-ctx.Done():
			}
		}
		return inbox.Handled, nil
	})
	start(t, newClient(t, s.Addr), l)
	eventually(t, func() bool { return len(s.unacked()) == 2 }, "0 is confirmed")
	eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.begun) == 2 }, "1 has begun")
	s.one("b", 0)
	eventually(t, func() bool { return s.all()[3].Acks == 1 }, "what came later is confirmed")
	assert.Len(t, s.unacked(), 2, "and 1 is not, nor 2")
	close(let)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
}

// What is abandoned goes to the topic of dead letters, as it was and with what is known of its end;
// then its key goes on.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 4)
	s.PublishOrdered(topic, []byte("nonsense"), map[string]string{"id": "x", "n": "9"}, "b")
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		switch it.n {
		case 1:
			return "", inbox.Permanent(errors.New("never"))
		case 2:
			return "", errors.New("not now")
		}
		return inbox.Handled, nil
	})
	p := start(t, newClient(t, s.Addr), l, WithDeadLetters("orders-dead"), WithConsumer("billing-v2"))
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	require.NoError(t, p.stop())
	assert.Equal(t, []seen{{"a", 0}, {"a", 3}}, l.finished())
	stats := p.Stats()
	assert.Equal(t, []int64{3, 2, 4}, []int64{stats.Forwarded, stats.Handled, stats.Failed})
	letters := map[string]map[string]string{}
	for _, m := range s.letters() {
		assert.Equal(t, s.find(m.Attributes[inbox.FieldDeadLetterPosition]).Data, m.Data)
		assert.Equal(t, s.find(m.Attributes[inbox.FieldDeadLetterPosition]).OrderingKey, m.OrderingKey)
		assert.Equal(t, name, m.Attributes[inbox.FieldDeadLetterSource])
		assert.Equal(t, "billing-v2", m.Attributes[inbox.FieldDeadLetterConsumer])
		letters[m.Attributes["n"]] = m.Attributes
	}
	require.Len(t, letters, 3)
	assert.Equal(t, "never", letters["1"][inbox.FieldDeadLetterReason])
	assert.Equal(t, "1", letters["1"][inbox.FieldDeadLetterAttempts])
	assert.Equal(t, "not now", letters["2"][inbox.FieldDeadLetterReason])
	assert.Equal(t, "3", letters["2"][inbox.FieldDeadLetterAttempts])
	assert.Equal(t, "0", letters["9"][inbox.FieldDeadLetterAttempts])
	assert.Equal(t, "x", letters["9"]["id"])
}

// With a dead letter policy and no topic of ours, Pub/Sub is left to do it. (The fake sends the
// dead letter, and keeps the message.)
func TestDeadLetterPolicy(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(sub *pubsubpb.Subscription) {
		sub.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 5}
		sub.EnableMessageOrdering = false
	})
	_, err := s.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: name + "-dead", Topic: dead})
	require.NoError(t, err)
	s.publish("a", 2)
	s.publish("b", 2)
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it == (seen{"a", 1}) {
			return "", errors.New("never")
		}
		return inbox.Handled, nil
	})
	p := start(t, newClient(t, s.Addr), l)
	eventually(t, func() bool {
		found, err := s.GServer.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: name + "-dead", MaxMessages: 1})
		return err == nil && len(found.GetReceivedMessages()) == 1 && len(s.unacked()) == 1
	}, "the others are confirmed, it is among the dead")
	require.NoError(t, p.stop())
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Equal(t, 3, l.times[seen{"a", 1}], "it is not tried again when it is abandoned")
	// Five are what the policy counts. The fake keeps the message, and hands it out again for as
	// long as we look: each time it is given back.
	assert.GreaterOrEqual(t, p.Stats().Nacked, int64(5))
}

// Without any place for dead letters nothing is lost: the message is held, and is done when its
// handler is mended.
func TestHeld(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 3)
	s.publish("b", 3)
	var mended atomic.Bool
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it == (seen{"a", 1}) && !mended.Load() {
			return "", inbox.Permanent(errors.New("never"))
		}
		return inbox.Handled, nil
	})
	p := start(t, newClient(t, s.Addr), l)
	eventually(t, func() bool { return p.Stats().Held == 1 && p.Stats().Handled == 4 }, "it is held, and its key with it")
	mended.Store(true)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	require.NoError(t, p.stop())
	l.inOrder(t)
	assert.Zero(t, p.Stats().Held)
}

// A stop under load: what is under way ends and is confirmed, all else comes to the next consumer.
// Nothing is lost, nothing confirmed undone, nothing handled twice.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for k := range 8 {
		s.publish(fmt.Sprint("k", k), 25)
	}
	s.publish("", 200)
	l := newLedger(t, nil)
	client := newClient(t, s.Addr)
	for len(s.unacked()) > 0 {
		before := len(l.finished())
		p := start(t, client, l, WithWorkers(4), WithMaxOutstanding(20, 1<<20))
		eventually(t, func() bool { return p.running.Load() != nil }, "it runs")
		eventually(t, func() bool { return len(l.finished()) >= min(before+40, 400) }, "it gets on")
		require.NoError(t, p.stop())
		assert.Len(t, s.unacked(), 400-len(l.finished()), "what is done is confirmed, and nothing else")
		stats := p.Stats()
		assert.Zero(t, stats.Claimed)
		s.pass(DefaultLease) // for what was on its way
	}
	assert.Len(t, l.finished(), 400)
	l.inOrder(t)
}

// A handler that does not end in time is told to, and its message comes again without an attempt
// charged.
func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 2)
	var end atomic.Bool
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, _ seen, time int) (inbox.Outcome, error) {
		if time == 1 && !end.Load() {
			<-ctx.Done()
			end.Store(true)
			return "", context.Cause(ctx)
		}
		return inbox.Handled, nil
	})
	client := newClient(t, s.Addr)
	p := start(t, client, l, WithShutdownTimeout(time.Millisecond))
	eventually(t, func() bool { return p.Stats().Running == 1 }, "it has begun")
	require.NoError(t, p.stop())
	assert.Len(t, s.unacked(), 2)
	start(t, client, l)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed, without waiting for a lease")
	l.inOrder(t)
}

// A handler that ends its goroutine, as a failed test does, takes no worker with it, and its
// message comes to its end.
func TestHandlerEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 3)
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, m seen, time int) (inbox.Outcome, error) {
		if m.n == 1 && time == 1 {
			runtime.Goexit()
		}
		return inbox.Handled, nil
	})
	start(t, newClient(t, s.Addr), l, WithWorkers(1))
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	l.inOrder(t)
}
