package watermill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// traffic is what is in progress at the publisher, for all Publish calls together. It has room for so
// many calls, and lets one of each key in at a time. What hangs stays in when its Publish call has
// ended: it keeps its room, and its key closed.
type traffic struct {
	room chan struct{} // one entry per call of the publisher

	mu      sync.Mutex
	keys    map[string]*flight
	hanging int
	leftAt  time.Time // when the last of them was left
}

// A flight is one message in progress. Its fields other than the channels belong to the traffic's
// lock.
type flight struct {
	key  string
	done chan struct{} // closed when the publisher has returned
	left chan struct{} // closed when the Publish call has ended without waiting for it

	leftAt time.Time
}

func newTraffic(room int) *traffic {
	return &traffic{room: make(chan struct{}, room), keys: map[string]*flight{}}
}

// enter waits until a message of this key may be handed to the publisher. Whoever gets in must call
// exit. An error says why not; it is unavailable where the whole publisher is, and otherwise has no
// class.
func (t *traffic) enter(ctx context.Context, key string) (*flight, error) {
	f := &flight{key: key, done: make(chan struct{}), left: make(chan struct{})}
	if err := t.reserve(ctx, f); err != nil {
		return nil, err
	}
	select {
	case t.room <- struct{}{}:
		return f, nil
	default:
	}
	for {
		wait, err := t.stuck()
		if err != nil {
			t.free(f)
			return nil, err
		}
		timer := time.NewTimer(wait)
		select {
		case t.room <- struct{}{}:
			timer.Stop()
			return f, nil
		case <-ctx.Done():
			timer.Stop()
			t.free(f)
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// reserve closes the key of a flight to others.
func (t *traffic) reserve(ctx context.Context, f *flight) error {
	for {
		other := t.claim(f)
		if other == nil {
			return nil
		}
		if err := t.await(ctx, other); err != nil {
			return err
		}
	}
}

// claim closes the key of a flight to others, or returns the flight that it is closed by.
func (t *traffic) claim(f *flight) (other *flight) {
	if f.key == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if other = t.keys[f.key]; other == nil {
		t.keys[f.key] = f
	}
	return other
}

var errHangs = errors.New("an earlier message of its key hangs: the publisher has not returned although the call ended")

// await waits for a flight of another call: as long as that call does, and then for a moment. More
// patience would only hold up the rest of this call.
func (t *traffic) await(ctx context.Context, f *flight) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-f.left:
	}
	t.mu.Lock()
	since := time.Since(f.leftAt)
	t.mu.Unlock()
	timer := time.NewTimer(patience - since)
	defer timer.Stop()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%w %s ago", errHangs, (since + max(0, patience-since)).Round(time.Second))
	}
}

// stuck is an error when all that is in progress hangs, and has for a moment: there may never be room
// again. Else it says when to ask again.
func (t *traffic) stuck() (wait time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hanging < cap(t.room) {
		return patience, nil
	}
	if wait = patience - time.Since(t.leftAt); wait > 0 {
		return wait, nil
	}
	return 0, brokers.Unreachable(brokers.ScopeBroker, fmt.Errorf("watermill: the publisher hangs: %d calls have not returned although their "+
		"callers have stopped waiting; set a timeout in the publisher's configuration", t.hanging))
}

// leave is called when a Publish call ends while one of its flights is in progress.
func (t *traffic) leave(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hanging++
	f.leftAt = time.Now()
	t.leftAt = f.leftAt
	close(f.left)
}

// exit is called when the publisher has returned.
func (t *traffic) exit(f *flight) {
	<-t.room
	t.free(f)
}

// free opens the key of a flight.
func (t *traffic) free(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !f.leftAt.IsZero() {
		t.hanging--
	}
	if f.key != "" {
		delete(t.keys, f.key)
	}
	close(f.done)
}
