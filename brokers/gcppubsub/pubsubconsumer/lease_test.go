package pubsubconsumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// A handler that takes longer than the lease keeps its message: the lease is extended while it
// runs, a lease at a time.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 1)
	id := s.all()[0].ID
	l := newLedger(t, func(ctx context.Context, _ *inbox.Message, _ seen, _ int) (inbox.Outcome, error) {
		for len(s.find(id).Modacks) < 3 { // at its receipt, and twice after
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(10 * time.Millisecond):
			}
		}
		return inbox.Handled, nil
	})
	began := time.Now()
	start(t, newClient(t, s.Addr), l)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "it is confirmed")
	assert.Greater(t, time.Since(began), DefaultLease*9/10)
	assert.Equal(t, 1, s.find(id).Deliveries)
	for _, extension := range s.find(id).Modacks {
		assert.Equal(t, int32(DefaultLease/time.Second), extension.AckDeadline, "what a killed process had claimed comes again soon")
	}
}

// A message whose lease has been lost comes again while it is handled: the copy waits for it and is
// confirmed with it.
func TestCopyOfAClaimedMessage(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{true, false} {
		s := newServer(t, func(sub *pubsubpb.Subscription) { sub.EnableMessageOrdering = ordered })
		s.publish("", 1)
		s.publish("a", 1)
		let := make(chan struct{})
		l := newLedger(t, func(context.Context, *inbox.Message, seen, int) (inbox.Outcome, error) {
			<-let
			return inbox.Handled, nil
		})
		p := start(t, newClient(t, s.Addr), l)
		eventually(t, func() bool {
			all := s.all()
			return p.Stats().Running == 2 && len(all[0].Modacks) > 0 && len(all[1].Modacks) > 0
		}, "they have begun, and their lease has")
		s.pass(DefaultLease + time.Second)
		eventually(t, func() bool { return p.Stats().Copies == 2 }, "copies come")
		for _, d := range p.running.Load().Claimed() {
			assert.Empty(t, d.(*delivery).message.Data, "they take no memory beside the message's own")
		}
		close(let)
		eventually(t, func() bool { return len(s.unacked()) == 0 }, "the copies are confirmed, which the server cares for alone")
		require.NoError(t, p.stop())
		assert.Len(t, l.finished(), 2, "each is handled once")
	}
}

// A message that has been claimed for too long is given back with all behind it, and comes again
// with its failures.
func TestMaxExtension(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 3)
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, time int) (inbox.Outcome, error) {
		if it.n == 1 && time < 6 {
			return "", errors.New("no")
		}
		return inbox.Handled, nil
	})
	c := hurried(t, newClient(t, s.Addr), l,
		Config{ConsumerConfig: inbox.ConsumerConfig{Retry: inbox.Retry{BaseDelay: 40 * time.Millisecond, MaxDelay: 40 * time.Millisecond, MaxAttempts: 6}}})
	c.config.MaxExtension = 60 * time.Millisecond // less than a lease, which is too long for a test
	p := started(t, c)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	require.NoError(t, p.stop())
	assert.Equal(t, []seen{{"a", 0}, {"a", 1}, {"a", 2}}, l.finished())
	stats := p.Stats()
	assert.Equal(t, int64(5), stats.Failed)
	assert.Positive(t, stats.Nacked)
	assert.Zero(t, stats.Held, "the sixth attempt was the sixth")
}
