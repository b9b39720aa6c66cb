package watermill_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/watermill"
)

// hangs is a publisher whose calls for these messages return when the channel is closed.
func hangs(until <-chan struct{}, ids ...string) *publisher {
	return &publisher{publish: func(_ string, m *message.Message) error {
		if slices.Contains(ids, m.UUID) {
			<-until
		}
		return nil
	}}
}

// within publishes with a deadline of so many seconds and tells how long it took.
func within(t *testing.T, seconds int, b brokers.Broker, msgs ...brokers.Message) (results []brokers.Result, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	began := time.Now()
	results = b.Publish(ctx, msgs)
	return results, time.Since(began)
}

// TestHangingPublisher: Publish returns when its context ends; the key of the message that hangs
// stays closed until the publisher has returned, and others go on.
func TestHangingPublisher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := hangs(release, "id-1")
		b := watermill.New(p)
		head, next, other := numbered("orders", "a", 1), numbered("orders", "a", 2), numbered("orders", "b", 3)

		results, took := within(t, 10, b, head, next, other)
		assert.Equal(t, 10*time.Second, took)
		class, scope := brokers.Classify(results[0].Err)
		assert.Equal(t, brokers.ClassUnavailable, class, "%v", results[0].Err)
		assert.Equal(t, brokers.ScopeBroker, scope)
		require.ErrorIs(t, results[0].Err, context.DeadlineExceeded)
		require.ErrorIs(t, results[1].Err, brokers.ErrNotSent)
		require.NoError(t, results[2].Err)

		// The next call waits for a moment only, and the one after it not at all.
		for _, patience := range []time.Duration{time.Second, 0} {
			results, took = within(t, 10, b, head, next, numbered("orders", "c", 4))
			assert.Equal(t, patience, took)
			require.ErrorIs(t, results[0].Err, brokers.ErrNotSent)
			assert.ErrorContains(t, results[0].Err, "hangs")
			require.ErrorIs(t, results[1].Err, brokers.ErrNotSent)
			require.NoError(t, results[2].Err)
		}
		assert.NotContains(t, p.ids(), "id-2", "nothing overtakes what hangs")

		close(release)
		synctest.Wait()
		results, took = within(t, 10, b, head, next)
		assert.Equal(t, map[string]int{"": 2}, verdicts(results))
		assert.Zero(t, took)
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestCancelledWhileUnderWay: whoever stops waiting learns that nothing is known.
func TestCancelledWhileUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := watermill.New(hangs(release, "id-0"), watermill.WithConcurrency(1))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		assert.Equal(t, map[string]int{"retryable": 1, "not_sent": 4}, verdicts(b.Publish(ctx, many(5, 0))))
		close(release)
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestEverythingHangs: the number of goroutines is bounded, and the broker is out, at once but for a
// moment after they were left, until one of them returns.
func TestEverythingHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var under atomic.Int64
		p := &publisher{publish: func(string, *message.Message) error {
			under.Add(1)
			<-release
			return nil
		}}
		b := watermill.New(p, watermill.WithConcurrency(3))
		results, _ := within(t, 10, b, many(10, 0)...)
		assert.Equal(t, map[string]int{"unavailable broker": 3, "not_sent": 7}, verdicts(results))
		for _, patience := range []time.Duration{time.Second, 0, 0, 0, 0} {
			results, took := within(t, 10, b, many(10, 0)...)
			assert.Equal(t, patience, took)
			count := verdicts(results)
			assert.Positive(t, count["unavailable broker"], "at least one result says that the broker is unavailable: %v", count)
			assert.Equal(t, 10, count["unavailable broker"]+count["not_sent"])
			assert.EqualValues(t, 3, under.Load())
		}
		close(release)
		synctest.Wait()
		results, _ = within(t, 10, b, many(10, 0)...)
		assert.Equal(t, map[string]int{"": 10}, verdicts(results))
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestKeyIsSharedByCalls: while one call has a message of a key in progress, another waits for it.
func TestKeyIsSharedByCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := hangs(release, "id-1")
		b := watermill.New(p)
		done := make(chan []brokers.Result, 2)
		go func() { done <- b.Publish(t.Context(), []brokers.Message{numbered("orders", "a", 1)}) }()
		synctest.Wait()
		go func() { done <- b.Publish(t.Context(), []brokers.Message{numbered("orders", "a", 2)}) }()
		synctest.Wait()
		results, took := within(t, 5, b, numbered("orders", "a", 3))
		require.ErrorIs(t, results[0].Err, brokers.ErrNotSent)
		assert.Equal(t, 5*time.Second, took, "as long as the other call waits, so does this one")
		assert.Equal(t, "id-1", p.ids())
		close(release)
		assert.Equal(t, map[string]int{"": 1}, verdicts(<-done))
		assert.Equal(t, map[string]int{"": 1}, verdicts(<-done))
		assert.Equal(t, "id-1 id-2", p.ids())
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestMessagesAreNotShared: what hangs has a copy of its message. (The race detector would find the
// rest.)
func TestMessagesAreNotShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, got := make(chan struct{}), make(chan string, 1)
		b := watermill.New(&publisher{publish: func(_ string, m *message.Message) error {
			<-release
			got <- m.UUID + string(m.Payload) + m.Metadata["tenant_id"]
			m.Payload[0] = 'x'
			return nil
		}})
		msgs := many(1, 1)
		msgs[0].Attributes = []brokers.Attribute{{Name: "tenant_id", Value: "acme"}}
		payload := msgs[0].Payload
		within(t, 1, b, msgs...)
		payload[0], msgs[0].Attributes[0].Value, msgs[0] = 'y', "other", brokers.Message{}
		close(release)
		assert.Equal(t, "id-00acme", <-got)
		require.NoError(t, b.Close(t.Context()))
		assert.Equal(t, "y", string(payload))
	})
}

// TestContextTravels: a publisher that looks at the message's context can end with it.
func TestContextTravels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := watermill.New(&publisher{publish: func(_ string, m *message.Message) error {
			<-m.Context().Done()
			return m.Context().Err()
		}})
		results, took := within(t, 3, b, many(2, 1)...)
		assert.Equal(t, map[string]int{"unavailable broker": 1, "not_sent": 1}, verdicts(results))
		assert.Equal(t, 3*time.Second, took)
		results, took = within(t, 3, b, many(1, 1)...)
		assert.Equal(t, map[string]int{"unavailable broker": 1}, verdicts(results), "the key was open again")
		assert.Equal(t, 3*time.Second, took)
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestErrorOfACancelledCall: what a publisher says after its context was cancelled is not held
// against the broker, whoever is faster.
func TestErrorOfACancelledCall(t *testing.T) {
	t.Parallel()
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		b := open(t, &publisher{publish: func(string, *message.Message) error {
			cancel()
			return errors.New("aborted")
		}})
		require.Equal(t, map[string]int{"retryable": 1, "not_sent": 1}, verdicts(b.Publish(ctx, many(2, 1))))
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		p := &publisher{publish: func(string, *message.Message) error {
			n := now.Add(1)
			defer now.Add(-1)
			for {
				if seen := most.Load(); n <= seen || most.CompareAndSwap(seen, n) {
					break
				}
			}
			time.Sleep(time.Millisecond) // in the bubble's time
			return nil
		}}
		b := watermill.New(p, watermill.WithConcurrency(3), watermill.WithConcurrency(0))
		done := make(chan map[string]int, 2)
		for range 2 { // calls share the limit
			go func() { done <- verdicts(b.Publish(t.Context(), many(100, 0))) }()
		}
		assert.Equal(t, map[string]int{"": 100}, <-done)
		assert.Equal(t, map[string]int{"": 100}, <-done)
		assert.EqualValues(t, 3, most.Load(), "as many as may, and no more")
		require.NoError(t, b.Close(t.Context()))
	})
}
