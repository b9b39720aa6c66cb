package adapter

import (
	"context"
	"fmt"
	"sync"
)

// A Gate counts those inside and can be closed once. The zero value is open. All methods are safe
// for concurrent use.
type Gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // made by Close, closed when the last one inside has left
}

// Enter lets one in and reports true, or reports false once the gate is closed. Whoever got in must
// call Leave.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

// Leave undoes one Enter.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// Close shuts the gate and waits until all have left, at most until ctx ends; then the error says
// how many are still inside. first is false, and nothing is waited for, when the gate had been
// closed before.
func (g *Gate) Close(ctx context.Context) (first bool, err error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false, nil
	}
	g.closed, g.empty = true, make(chan struct{})
	if g.inside == 0 {
		close(g.empty)
	}
	g.mu.Unlock()

	select {
	case <-g.empty:
		return true, nil
	default: // a context that has ended must not win against a gate that is empty
	}
	select {
	case <-g.empty:
		return true, nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		return true, fmt.Errorf("%d publish calls still in progress: %w", g.inside, ctx.Err())
	}
}
