package brokertest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// together runs n callers at once and waits for them.
func together(n int, run func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { run(i) })
	}
	all.Wait()
}

func (s *suite) contextEndedBefore(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	msgs := messages(destination, 150, "a", "b", "")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	for _, ctx := range []context.Context{cancelled, expired} {
		results := b.Publish(ctx, msgs)
		require.Len(t, results, len(msgs))
		for i, result := range results {
			require.ErrorIs(t, result.Err, brokers.ErrNotSent, "message %d", i)
		}
		s.honest(t, msgs, results)
	}
	s.succeed(t, b, msgs) // and the broker still works
}

// contextEndsMeanwhile: whatever the moment, the results are honest.
func (s *suite) contextEndsMeanwhile(t *testing.T) {
	b := s.open(t)
	for range 3 {
		destination := s.Destination(t)
		msgs := messages(destination, 2000, append(keys(30), "")...)
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan []brokers.Result, 1)
		go func() { answer <- b.Publish(ctx, msgs) }()
		s.arrived(t, destination, 1+s.random.IntN(500))
		cancel()
		select {
		case results := <-answer:
			require.Len(t, results, len(msgs))
			s.honest(t, msgs, results)
		case <-t.Context().Done():
			require.Fail(t, "Publish did not return after its context had ended")
		}
	}
}

// concurrent: callers do not disturb each other, not even where one of them fails.
func (s *suite) concurrent(t *testing.T) {
	const callers = 8
	b, destination := s.open(t), s.Destination(t)
	names := keys(callers * 5)
	sent := make([][]brokers.Message, callers)
	var all []brokers.Message
	for i := range sent {
		sent[i] = messages(destination, 300, names[i*5:(i+1)*5]...)
		all = append(all, sent[i]...)
	}
	together(callers, func(i int) {
		for bulk := range slices.Chunk(sent[i], 30+i) {
			results := b.Publish(t.Context(), bulk)
			assert.Len(t, results, len(bulk))
			for _, result := range results {
				assert.NoError(t, result.Err)
			}
			assert.NoError(t, b.Ping(t.Context()))
		}
	})
	received := s.arrived(t, destination, len(all))
	assert.Len(t, received, len(all), "each message once")
	inOrder(t, all, received)
}

func (s *suite) publishAfterClose(t *testing.T) {
	b, destination := s.Open(t), s.Destination(t)
	msgs := messages(destination, 3, "k", "")
	s.succeed(t, b, msgs[:1])
	require.NoError(t, b.Close(t.Context()))
	results := s.publish(t, b, msgs)
	for i, result := range results {
		require.ErrorIs(t, result.Err, brokers.ErrClosed, "message %d", i)
		class, scope := brokers.Classify(result.Err)
		require.Equal(t, brokers.ClassUnavailable, class)
		require.Equal(t, brokers.ScopeBroker, scope)
	}
	assert.Empty(t, s.publish(t, b, nil))
	assert.Error(t, b.Ping(t.Context()), "Ping after Close: return ErrClosed")
	assert.NoError(t, b.Close(t.Context()), "a second Close does nothing")
	assert.Len(t, s.Received(t, destination), 1)
}

// closeWhilePublishing: Close waits for what is in progress; what it let in arrives, and nothing
// comes after it.
func (s *suite) closeWhilePublishing(t *testing.T) {
	const callers = 4
	b, destination := s.Open(t), s.Destination(t)
	names := keys(callers)
	sent := make([][]brokers.Message, callers)
	results := make([][]brokers.Result, callers)
	var done atomic.Int64
	var publishing sync.WaitGroup
	for i := range callers {
		publishing.Go(func() {
			defer done.Add(1)
			for closed := false; !closed && len(sent[i]) < 100_000; {
				bulk := messages(destination, 50, names[i])
				answer := b.Publish(t.Context(), bulk)
				sent[i], results[i] = append(sent[i], bulk...), append(results[i], answer...)
				for _, result := range answer {
					closed = closed || result.Err != nil
				}
			}
		})
	}
	s.arrived(t, destination, 500)
	ctx, cancel := context.WithTimeout(t.Context(), s.Patience)
	defer cancel()
	require.NoError(t, b.Close(ctx))
	count := len(s.Received(t, destination))
	publishing.Wait()
	assert.Equal(t, count, len(s.Received(t, destination)), "nothing arrives after Close") //nolint:testifylint // Len would print them all
	for i := range callers {
		require.Len(t, results[i], len(sent[i]))
		s.honest(t, sent[i], results[i])
		for _, result := range results[i] {
			if result.Err != nil {
				require.ErrorIs(t, result.Err, brokers.ErrClosed)
			}
		}
	}
}

func (s *suite) ping(t *testing.T) {
	b := s.open(t)
	require.NoError(t, b.Ping(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, b.Ping(ended))
}

func (s *suite) checkDestination(t *testing.T) {
	b, destination := s.Open(t), s.Destination(t)
	checker, tells := b.(brokers.DestinationChecker)
	if !tells {
		require.NoError(t, b.Close(t.Context()))
		t.Skip("NOT TESTED: this broker is no brokers.DestinationChecker, which is optional")
	}
	require.NoError(t, checker.CheckDestination(t.Context(), destination))
	assert.Empty(t, s.Received(t, destination), "a check publishes nothing")
	s.succeed(t, b, messages(destination, 1, "k", ""))
	require.NoError(t, checker.CheckDestination(t.Context(), destination))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, checker.CheckDestination(ended, destination))
	require.NoError(t, b.Close(t.Context()))
	require.ErrorIs(t, checker.CheckDestination(t.Context(), destination), brokers.ErrClosed)
}
