package consumer

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// told counts what a broker is told.
type told struct{ acks, nacks atomic.Int64 }

func (d *told) Ack()  { d.acks.Add(1) }
func (d *told) Nack() { d.nacks.Add(1) }

func entry(key, id string) *Entry {
	return &Entry{ID: id, Message: &inbox.Message{ID: id, OrderingKey: key}}
}

func settings(do func(ctx context.Context, m *inbox.Message) error) Settings {
	log := slog.New(slog.DiscardHandler)
	return Settings{
		Runner: inbox.Runner{
			Handler: inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) { return inbox.Handled, do(ctx, m) }),
			Retry:   inbox.Retry{BaseDelay: time.Minute}.WithDefaults(inbox.DefaultRetry()), Log: log,
		},
		Workers: 4, Shutdown: time.Second, Grace: time.Second, Log: log, Counts: &Counts{},
	}
}

// What arrives when the session stops is given back.
func TestArrivesTooLate(t *testing.T) {
	t.Parallel()
	set := settings(func(context.Context, *inbox.Message) error { return nil })
	set.MaxMessages, set.MaxBytes = 1, 1
	s := New(t.Context(), &set)
	s.Stop(func() {})
	var broker told
	s.Arrive(t.Context(), entry("a", "1"), &broker)
	assert.Equal(t, int64(1), broker.nacks.Load())
	assert.Equal(t, inbox.ConsumerStats{Received: 1, Nacked: 1}, set.Counts.Stats(s))
	assert.True(t, s.messages.TryAcquire(1), "its room is free")
}

// Copies that come while an attempt fails move the end of the lease that the pause looks at: the
// race detector watches.
func TestCopyWhileAnAttemptFails(t *testing.T) {
	t.Parallel()
	const messages = 200
	let := make(chan struct{})
	set := settings(func(context.Context, *inbox.Message) error {
		<-let
		return errors.New("not yet")
	})
	set.Workers = messages
	s := New(t.Context(), &set)
	var broker told
	deliver := func() {
		for n := range messages {
			e := entry("", strconv.Itoa(n))
			e.Expire = time.Now().Add(time.Hour)
			s.Take(e, &broker)
		}
	}
	deliver()
	var copies sync.WaitGroup
	copies.Go(deliver)
	close(let)
	copies.Wait()
	s.under.Wait()
	for _, e := range s.queues.byID {
		assert.Len(t, e.copies, 2)
		assert.Equal(t, 1, e.Past.Failures)
	}
	assert.Len(t, s.queues.byID, messages)
	s.Stop(func() {})
	assert.Equal(t, int64(2*messages), broker.nacks.Load())
}

// Where the latest delivery confirms a message, its copies take no memory, however many come while
// it is claimed.
func TestLatestConfirms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		set := settings(func(context.Context, *inbox.Message) error {
			<-let
			return nil
		})
		set.LatestConfirms = true
		s := New(t.Context(), &set)
		var first, others, latest told
		s.Take(entry("a", "1"), &first)
		for range 100 {
			s.Take(entry("a", "1"), &others)
		}
		s.Take(entry("a", "1"), &latest)
		assert.Equal(t, []Delivery{&latest}, s.Claimed())
		close(let)
		synctest.Wait()
		assert.Equal(t, []int64{0, 0, 1}, []int64{first.acks.Load(), others.acks.Load(), latest.acks.Load()})
		s.Stop(func() {})
		assert.Zero(t, first.nacks.Load()+others.nacks.Load()+latest.nacks.Load())
	})
}

// What waits is given up at once, what is being handled when it has ended; what has come since
// waits for it.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		var handled []string
		set := settings(func(_ context.Context, m *inbox.Message) error {
			if m.ID == "a1" {
				<-let
			}
			handled = append(handled, m.ID)
			if m.ID == "b1" {
				return errors.New("not yet")
			}
			return nil
		})
		s := New(t.Context(), &set)
		var old, young told
		for _, e := range []*Entry{entry("a", "a1"), entry("a", "a2"), entry("b", "b1"), entry("b", "b2")} {
			s.Take(e, &old)
		}
		synctest.Wait()
		withdrawn := make(chan struct{})
		go func() {
			s.Withdraw(t.Context(), func(*Entry) bool { return true })
			close(withdrawn)
		}()
		synctest.Wait()
		assert.Equal(t, int64(3), old.nacks.Load(), "a2, b1 and b2")
		s.Take(entry("a", "a2"), &young)
		synctest.Wait()
		assert.Equal(t, []string{"b1"}, handled)
		close(let)
		<-withdrawn
		synctest.Wait()
		assert.Equal(t, []string{"b1", "a1", "a2"}, handled)
		assert.Equal(t, int64(1), old.acks.Load())
		assert.Equal(t, int64(1), young.acks.Load())
		claimed, running := s.Figures()
		assert.Equal(t, []int{0, 0}, []int{claimed, running})
		s.Stop(func() {})
	})
}

// A handler that does not end in time loses its message: its context ends, its success is not
// confirmed, and the message, when it comes again, waits for it.
func TestLost(t *testing.T) {
	t.Parallel()
	for _, how := range []error{nil, errors.New("no"), inbox.Permanent(errors.New("never"))} {
		synctest.Test(t, func(t *testing.T) {
			let := make(chan struct{})
			var begun, cancelled int
			set := settings(func(ctx context.Context, _ *inbox.Message) error {
				if begun++; begun > 1 {
					return nil
				}
				<-ctx.Done()
				cancelled++
				require.ErrorIs(t, context.Cause(ctx), errLost)
				<-let
				return how
			})
			set.DeadLetter = func(context.Context, *Entry) error { return nil }
			s := New(t.Context(), &set)
			var old, young told
			s.Take(entry("a", "a1"), &old)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s.Withdraw(ctx, func(*Entry) bool { return true })
			synctest.Wait()
			assert.Equal(t, []int64{0, 1}, []int64{old.acks.Load(), old.nacks.Load()})
			assert.Equal(t, []int{1, 1}, []int{begun, cancelled})
			s.Take(entry("a", "a1"), &young)
			synctest.Wait()
			assert.Equal(t, 1, begun, "not beside its former self")
			close(let)
			synctest.Wait()
			assert.Equal(t, 2, begun)
			assert.Equal(t, []int64{1, 0}, []int64{young.acks.Load(), young.nacks.Load()})
			assert.Equal(t, []int64{0, 1}, []int64{old.acks.Load(), old.nacks.Load()})
			assert.Empty(t, s.queues.byKey)
			s.Stop(func() {})
		})
	}
}
