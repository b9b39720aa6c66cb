package brokertest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// stop takes the server away for the rest of the case, or skips the case. start brings it back, at
// the latest at its end.
func (s *suite) stop(t *testing.T) (start func()) {
	t.Helper()
	if s.Stop == nil || s.Start == nil {
		t.Skip("NOT TESTED: Stop or Start of the harness is nil")
	}
	s.Stop(t)
	started := false
	start = func() {
		if !started {
			started = true
			s.Start(t)
		}
	}
	t.Cleanup(start)
	return start
}

// blameless checks the results of a bulk that met an outage: no message is at fault.
func (s *suite) blameless(t *testing.T, results []brokers.Result) {
	t.Helper()
	want := brokers.ScopeBroker
	if s.OutByDestination {
		want = brokers.ScopeDestination
	}
	unavailable := 0
	for i, result := range results {
		require.Error(t, result.Err, "message %d", i)
		if _, refused := brokers.Refusal(result.Err); refused { // whose it is, the relay finds out
			unavailable++
			continue
		}
		switch class, scope := brokers.Classify(result.Err); class {
		case brokers.ClassUnavailable:
			require.Equal(t, want, scope, "message %d: %v", i, result.Err)
			unavailable++
		case brokers.ClassNotSent:
		default:
			require.Fail(t, "an outage is no message's fault", "message %d is %s: %v", i, class, result.Err)
		}
	}
	require.Positive(t, unavailable, "at least one result says that the %s is unavailable", want)
}

// outage: the server is stopped: no message is at fault. It is started again: the same broker
// carries on.
func (s *suite) outage(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	msgs := messages(destination, 260, append(keys(3), "")...)
	s.succeed(t, b, msgs[:20])

	start := s.stop(t)
	for range 3 {
		s.blameless(t, s.publish(t, b, msgs[20:]))
	}
	require.Error(t, b.Ping(t.Context()))

	start()
	started := time.Now()
	waiting := msgs[20:]
	s.eventually(t, "the broker works again", func() bool {
		results := b.Publish(t.Context(), waiting)
		for len(results) > 0 && results[0].Err == nil {
			results, waiting = results[1:], waiting[1:]
		}
		return len(waiting) == 0
	})
	t.Logf("worked again %s after the server was back", time.Since(started).Round(time.Millisecond))
	s.eventually(t, "a ping succeeds", func() bool { return b.Ping(t.Context()) == nil }) // perhaps over another connection
	inOrder(t, msgs, s.arrived(t, destination, len(msgs)))
}

// outageWhilePublishing: a server that goes away in the middle costs neither messages nor order.
func (s *suite) outageWhilePublishing(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	var (
		sent      []brokers.Message
		end       atomic.Bool
		confirmed atomic.Int64
		finished  = make(chan struct{})
	)
	ctx, cancel := context.WithTimeout(t.Context(), 2*s.Patience)
	defer cancel()
	go func() { // a processor in short: one key, again from the first message that is not confirmed
		defer close(finished)
		for next := 0; (!end.Load() || next < len(sent)) && ctx.Err() == nil; {
			for len(sent) < next+60 && !end.Load() {
				sent = append(sent, message(destination, "k", len(sent)))
			}
			for _, result := range b.Publish(ctx, sent[next:]) {
				if result.Err != nil {
					class, _ := brokers.Classify(result.Err)
					assert.NotEqual(t, brokers.ClassPermanent, class, "%v", result.Err)
					break
				}
				next++
			}
			confirmed.Store(int64(next))
		}
	}()
	progress := func(more int64) {
		t.Helper()
		target := confirmed.Load() + more
		s.eventually(t, "publishing goes on", func() bool { return confirmed.Load() >= target })
	}
	defer func() {
		cancel()
		<-finished
	}()
	for range 2 {
		progress(200)
		s.stop(t)()
	}
	progress(200)
	end.Store(true)
	<-finished
	require.NoError(t, ctx.Err())
	inOrder(t, sent, s.Received(t, destination))
}
