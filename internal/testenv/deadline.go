package testenv

import (
	"context"
	"sync/atomic"
)

// Deadline returns a context whose deadline passes when pass is called, not by a clock: a test of that
// moment cannot be late for it.
func Deadline(parent context.Context) (ctx context.Context, pass func()) {
	ended, end := context.WithCancel(parent)
	d := &deadline{Context: context.WithoutCancel(parent), ended: ended}
	return d, func() {
		if ended.Err() == nil {
			d.passed.Store(true)
			end()
		}
	}
}

type deadline struct {
	context.Context //nolint:containedctx // a context wraps another one

	ended  context.Context //nolint:containedctx // as above
	passed atomic.Bool
}

// Done implements context.Context.
func (d *deadline) Done() <-chan struct{} { return d.ended.Done() }

// Err implements context.Context.
func (d *deadline) Err() error {
	if d.passed.Load() {
		return context.DeadlineExceeded
	}
	return d.ended.Err()
}
