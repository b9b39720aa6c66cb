package outbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// gate keeps a processor from hammering a broker that is unavailable. While the broker works the gate is open. After a
// failure it closes for a delay that doubles from one failure to the next; then one worker at a time may try with a few
// messages, and a success opens it for all. What began before the gate closed says nothing about the broker of now: while
// it is closed the word of who tries is the only one that counts.
type gate struct {
	min, max time.Duration

	mu       sync.Mutex
	failures int
	until    time.Time
	probing  bool
	closings int
	changed  chan struct{}
}

// pass lets one worker claim and send once.
type pass struct {
	probe    bool // with a few rows, to try out a broker that was unavailable
	closings int  // of the gate, when the pass was given
}

func newGate(minDelay, maxDelay time.Duration) *gate {
	return &gate{min: minDelay, max: maxDelay, changed: make(chan struct{})}
}

// stay gives the next pass to a worker that has rows in hand and so must not wait; ok is false when the gate is closed.
func (g *gate) stay() (p pass, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pass{closings: g.closings}, g.failures == 0
}

// enter waits until the caller may claim. Its pass must be given back, by leave or report.
func (g *gate) enter(ctx context.Context) (pass, error) {
	for {
		g.mu.Lock()
		p := pass{closings: g.closings}
		if g.failures == 0 {
			g.mu.Unlock()
			return p, ctx.Err()
		}
		wait := time.Until(g.until)
		if wait <= 0 && !g.probing {
			p.probe, g.probing = true, true
			g.mu.Unlock()
			return p, ctx.Err()
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
			return pass{}, ctx.Err()
		}
	}
}

// leave gives back a pass that had no outcome, such as that of a claim that found no rows.
func (g *gate) leave(p pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(p)
}

func (g *gate) end(p pass) {
	if p.probe {
		g.probing = false
		g.broadcast()
	}
}

// report gives a pass back and tells whether the broker was available. It returns true when that is news.
func (g *gate) report(p pass, available bool) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.end(p)
	closed := g.failures > 0
	switch {
	case p.closings != g.closings: // it began before the gate closed
		return false
	case available:
		g.failures = 0
		return closed
	}
	delay := min(g.min<<min(g.failures, 20), g.max)
	g.failures++
	g.until = time.Now().Add(delay - time.Duration(rand.Int64N(int64(delay)/4+1))) // jitter
	if !closed {
		g.closings++
	}
	return !closed
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
