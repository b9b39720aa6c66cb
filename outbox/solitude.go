package outbox

import (
	"context"
	"sync"
	"time"
)

// solitude lets one worker of a process be the only one that has rows in hand. A message that was alone in its claim when its
// process died is tried again like that: if the process dies again, it was this message, and not one that another worker was
// sending at that moment.
type solitude struct {
	mu      sync.Mutex
	busy    int  // workers that have rows in hand, or are about to
	alone   bool // somebody is alone, or waits for it; nobody else may begin
	changed chan struct{}
}

// isolationTime bounds how long a message waits for the other workers to finish what they have in hand. A broker that hangs
// must not stop the others for longer; then the message goes out beside it.
const isolationTime = 2 * time.Second

func newSolitude() *solitude { return &solitude{changed: make(chan struct{})} }

// wanted reports whether somebody wants to be alone.
func (s *solitude) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone
}

// wait waits for a condition and then changes something, both under the lock. It returns false when ctx ended before.
func (s *solitude) wait(ctx context.Context, condition func() bool, then func()) bool {
	for {
		s.mu.Lock()
		if condition() {
			then()
			s.mu.Unlock()
			return true
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// change changes something and tells those who wait.
func (s *solitude) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	close(s.changed)
	s.changed = make(chan struct{})
}

// company is one worker's part in it. It belongs to that worker alone.
type company struct {
	*solitude

	joined, isolated bool
}

// join must be called before rows are claimed. It waits while somebody is alone, and fails when ctx has ended.
func (c *company) join(ctx context.Context) error {
	if !c.joined {
		c.joined = c.wait(ctx, func() bool { return !c.alone }, func() { c.busy++ })
	}
	if !c.joined {
		return ctx.Err()
	}
	return nil
}

// leave says that the worker has nothing in hand.
func (c *company) leave() {
	if c.joined {
		c.joined = false
		c.change(func() { c.busy-- })
	}
}

// isolate waits until the worker, which has joined, is the only one that has. ok is false when another one is, or waits for
// it: then what is in hand must be given back. Where the others do not finish in time the worker goes on beside them.
func (c *company) isolate(ctx context.Context, limit time.Duration) (ok bool) {
	c.mu.Lock()
	taken := c.alone
	c.alone = true
	c.mu.Unlock()
	if taken {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.isolated = c.wait(ctx, func() bool { return c.busy == 1 }, func() {})
	if !c.isolated {
		c.change(func() { c.alone = false })
	}
	return true
}

// rejoin ends what isolate began.
func (c *company) rejoin() {
	if c.isolated {
		c.isolated = false
		c.change(func() { c.alone = false })
	}
}
