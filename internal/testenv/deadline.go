package testenv

import (
	"context"
	"sync"
)

// Deadline returns a context whose deadline passes when pass is called, not by a clock: a test that
// is about what happens then cannot be late for it.
func Deadline(parent context.Context) (ctx context.Context, pass func()) {
	d := &deadline{Context: parent, done: make(chan struct{})}
	stop := context.AfterFunc(parent, d.end)
	return d, func() {
		stop()
		d.mu.Lock()
		d.passed = parent.Err() == nil
		d.mu.Unlock()
		d.end()
	}
}

type deadline struct {
	context.Context //nolint:containedctx // it is one

	done chan struct{}
	once sync.Once

	mu     sync.Mutex
	passed bool
}

func (d *deadline) end() { d.once.Do(func() { close(d.done) }) }

// Done implements context.Context.
func (d *deadline) Done() <-chan struct{} { return d.done }

// Err implements context.Context.
func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed {
		return context.DeadlineExceeded
	}
	return d.Context.Err()
}
