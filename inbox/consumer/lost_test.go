package consumer

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/inbox"
)

// over is a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func everything(*Entry) bool { return true }

// leaver ends its handler while another message is given back, and waits until that has been noted.
type leaver struct {
	told

	nack func()
}

func (d *leaver) Nack() {
	d.told.Nack()
	d.nack()
}

// A handler that ends while the messages of a session are left behind: each of them is confirmed or
// given back, and never both.
func TestEndsWhileLeftBehind(t *testing.T) {
	t.Parallel()
	const messages = 3
	let := make(chan struct{})
	set := settings(func(context.Context, *inbox.Message) error {
		<-let
		return nil
	})
	set.Shutdown, set.Grace = 0, 0
	s := New(t.Context(), &set)
	var all [messages]*leaver
	var others sync.Once
	for n := range all {
		all[n] = &leaver{nack: func() {
			others.Do(func() {
				close(let)
				s.under.Wait()
			})
		}}
		s.Take(entry("", strconv.Itoa(n)), all[n])
	}
	s.Stop(func() {})
	s.under.Wait()
	for n, d := range all {
		assert.Equal(t, int64(1), d.acks.Load()+d.nacks.Load(), "message %d", n)
	}
}

// Handlers that fail while their messages are lost: the race detector watches.
func TestFailsWhileLost(t *testing.T) {
	t.Parallel()
	for range 20 {
		const messages = 50
		let := make(chan struct{})
		set := settings(func(context.Context, *inbox.Message) error {
			<-let
			return inbox.Permanent(errors.New("never"))
		})
		set.Workers, set.Recurs = messages, true
		s := New(t.Context(), &set)
		var broker told
		for n := range messages {
			s.Take(entry("", strconv.Itoa(n)), &broker)
		}
		var lost sync.WaitGroup
		lost.Go(func() { s.Withdraw(over(), everything) })
		close(let)
		lost.Wait()
		s.Stop(func() {})
		assert.Zero(t, set.Counts.Stats(s).Held)
	}
}

// A message that is lost just before it would be held is none of ours any more.
func TestLostBeforeHeld(t *testing.T) {
	t.Parallel()
	set := settings(func(context.Context, *inbox.Message) error { return inbox.Permanent(errors.New("never")) })
	var s *Session
	set.HandBack = func(*Entry) bool {
		s.Withdraw(over(), everything)
		return false
	}
	s = New(t.Context(), &set)
	var broker told
	s.Take(entry("a", "1"), &broker)
	s.under.Wait()
	s.Stop(func() {})
	assert.Equal(t, int64(1), broker.nacks.Load())
	assert.Zero(t, set.Counts.Stats(s).Held)
}

// Copies that come while a message is put away do not change which delivery was its first: the race
// detector watches.
func TestCopyWhilePutAway(t *testing.T) {
	t.Parallel()
	set := settings(func(context.Context, *inbox.Message) error { return inbox.Permanent(errors.New("never")) })
	var broker, second told
	begun, let := make(chan struct{}), make(chan struct{})
	set.DeadLetter = func(_ context.Context, e *Entry) error {
		close(begun)
		for range 1000 {
			assert.Same(t, &broker, e.First())
		}
		<-let
		return nil
	}
	s := New(t.Context(), &set)
	s.Take(entry("a", "1"), &broker)
	<-begun
	for range 100 {
		s.Take(entry("a", "1"), &second)
	}
	close(let)
	s.under.Wait()
	s.Stop(func() {})
	assert.Equal(t, []int64{1, 100}, []int64{broker.acks.Load(), second.acks.Load()})
}
