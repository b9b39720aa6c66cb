// Package purge is how whatever is old gets removed: now and then, in bounded batches.
package purge

import (
	"context"
	"time"
)

// FirstAfter is when the first run of a program's purge comes: not while it starts, and no later
// than after an interval.
func FirstAfter(interval time.Duration) time.Duration { return min(time.Minute, interval) }

// Every calls run after first, and then an interval after each run has ended, until ctx ends. A run
// sees to its own errors: the next one tries again.
func Every(ctx context.Context, first, interval time.Duration, run func(context.Context)) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		run(ctx)
		timer.Reset(interval)
	}
}

// Batches calls remove until it removes less than limit, and adds to total what it removed, also
// where it failed on the way. Between two batches it calls pause, if there is one.
func Batches[N int | int64](total *N, limit N, remove func() (N, error), pause func() error) error {
	for {
		n, err := remove()
		*total += n
		if err != nil || n < limit {
			return err
		}
		if pause == nil {
			continue
		}
		if err := pause(); err != nil {
			return err
		}
	}
}
