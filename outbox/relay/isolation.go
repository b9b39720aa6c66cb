package relay

import (
	"context"
	"sync"
	"time"
)

// crashIsolation lets one worker of a process be the only one that has claimed rows. A message that
// was alone in its claim when its process crashed is tried again like that: if the process crashes
// again, it was this message, and not one that another worker was sending at that moment.
type crashIsolation struct {
	mu      sync.Mutex
	busy    int       // workers that have claimed rows, or are about to
	alone   *claimant // who is alone, or waits for it; no other may begin
	rest    time.Time // until then no worker waits to be alone
	changed chan struct{}
}

const (
	// isolationTime bounds how long no other may begin: while a worker that is to be alone waits
	// for the others to complete what they have claimed, and while it is alone. A broker that
	// hangs, theirs or its own, must not stop the others for longer; then they go on beside each
	// other.
	isolationTime = 2 * time.Second
	// restShare is how many times as long as it took no worker waits to be alone, once the bound
	// was met: a broker that hangs will do so again.
	restShare = 9
)

func newCrashIsolation() *crashIsolation { return &crashIsolation{changed: make(chan struct{})} }

// wanted reports whether a worker waits to be alone.
func (s *crashIsolation) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone != nil
}

// wait waits for a condition and then changes something, both under the lock. It returns false when
// ctx ended before.
func (s *crashIsolation) wait(ctx context.Context, condition func() bool, then func()) bool {
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
func (s *crashIsolation) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	close(s.changed)
	s.changed = make(chan struct{})
}

// claimant is one worker's part in crash isolation. It belongs to that worker.
type claimant struct {
	process *crashIsolation
	joined  bool
	over    *time.Timer // ends what isolate began
}

// join must be called before rows are claimed. It waits while a worker is alone, and fails when ctx
// has ended.
func (c *claimant) join(ctx context.Context) error {
	if !c.joined {
		c.joined = c.process.wait(ctx, func() bool { return c.process.alone == nil }, func() { c.process.busy++ })
	}
	if !c.joined {
		return ctx.Err()
	}
	return nil
}

// leave says that the worker has claimed nothing any more.
func (c *claimant) leave() {
	if c.joined {
		c.joined = false
		c.process.change(func() { c.process.busy-- })
	}
}

// isolate is join for a worker that is to be alone. Until then it has nothing claimed: should the
// process crash of what others have, it loses nothing. Where the others do not complete within the
// limit, the worker joins beside them. Isolation must be ended by rejoin; it ends by itself when
// the limit is reached.
func (c *claimant) isolate(ctx context.Context, limit time.Duration) error {
	c.leave()
	rests := false
	if !c.process.wait(ctx, func() bool { return c.process.alone == nil }, func() {
		if rests = time.Now().Before(c.process.rest); !rests {
			c.process.alone = c
		}
	}) {
		return ctx.Err()
	}
	if rests {
		return c.join(ctx)
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if c.joined = c.process.wait(bounded, func() bool { return c.process.busy == 0 }, func() { c.process.busy++ }); !c.joined {
		c.end(restShare * time.Since(began))
		return c.join(ctx)
	}
	c.over = time.AfterFunc(limit-time.Since(began), func() { c.end(restShare * time.Since(began)) })
	return nil
}

// rejoin ends what isolate began: the others may begin, too.
func (c *claimant) rejoin() {
	if c.over != nil {
		c.over.Stop()
		c.over = nil
		c.end(0)
	}
}

func (c *claimant) end(rest time.Duration) {
	c.process.change(func() {
		if c.process.alone == c {
			c.process.alone, c.process.rest = nil, time.Now().Add(rest)
		}
	})
}
