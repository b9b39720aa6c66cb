package outbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// gate keeps a processor from hammering a broker that is unavailable. While the broker works the gate is open. After a
// failure it closes for a delay that doubles from one failure to the next; then one worker at a time may try with a few
// messages, and a success opens it for all.
type gate struct {
	min, max time.Duration

	mu       sync.Mutex
	failures int
	until    time.Time
	probing  bool
	changed  chan struct{}
}

func newGate(minDelay, maxDelay time.Duration) *gate {
	return &gate{min: minDelay, max: maxDelay, changed: make(chan struct{})}
}

// enter waits until the caller may claim. probe is true when it should claim only a few rows; it must then call leave.
func (g *gate) enter(ctx context.Context) (probe bool, err error) {
	for {
		g.mu.Lock()
		if g.failures == 0 {
			g.mu.Unlock()
			return false, ctx.Err()
		}
		wait := time.Until(g.until)
		if wait <= 0 && !g.probing {
			g.probing = true
			g.mu.Unlock()
			return true, ctx.Err()
		}
		if wait <= 0 {
			wait = g.max // somebody is trying; its answer wakes us
		}
		changed := g.changed
		g.mu.Unlock()

		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
}

// leave ends a try that had no outcome, such as one that found no rows.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing = false
	g.broadcast()
}

// report tells whether the broker was available, and returns true when that is news.
func (g *gate) report(available bool) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.failures
	g.probing = false
	if available {
		g.failures = 0
	} else if g.failures == 0 || !time.Now().Before(g.until) { // failures of the same outage count once per delay
		delay := min(g.min<<min(g.failures, 20), g.max)
		g.failures++
		g.until = time.Now().Add(delay - time.Duration(rand.Int64N(int64(delay)/4+1))) // jitter
	}
	g.broadcast()
	return (before == 0) != (g.failures == 0)
}

// nextDelay is how long the gate stays closed after the next failure.
func (g *gate) nextDelay() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return min(g.min<<min(g.failures, 20), g.max)
}

// closed reports whether the broker counts as unavailable.
func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failures > 0
}

func (g *gate) broadcast() {
	close(g.changed)
	g.changed = make(chan struct{})
}
