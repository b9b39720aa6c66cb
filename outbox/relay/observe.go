package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// An Observer sees what processors do, to measure or to trace it; telemetry/otelrelay has one of
// each.
type Observer interface {
	// Observe returns who watches the processor of one broker in one database; nil = none. It is
	// asked once for each processor, when that is made.
	Observe(database, broker string) ProcessorObserver
}

// A ProcessorObserver is notified of what one processor does, by the goroutine that does it: each
// method should return at once, and must not panic. All are called by several goroutines at a time.
// What their pointers lead to is the processor's: it may be read until the method returns, and
// neither changed nor kept.
type ProcessorObserver interface {
	// Claimed tells of a claim that has taken rows: how many, and how long the database took for
	// it, with the completion of an earlier batch that went the same way.
	Claimed(ctx context.Context, rows int, took time.Duration)
	// Publishing tells what is about to be handed to the broker. The context that it returns, which
	// must be ctx or made from it, goes to the broker's client and to Published.
	Publishing(ctx context.Context, call *Call) context.Context
	// Published tells how the same call ended.
	Published(ctx context.Context, call *Call)
	// Completing tells what becomes of the rows of a batch, before it is written.
	Completing(ctx context.Context, completion *driver.Completion)
	// LeaseLost tells how many rows of a batch had been claimed by another worker by the time their
	// outcome was to be written.
	LeaseLost(ctx context.Context, rows int)
}

// A Call is one call of a broker. Messages, Outgoing and Results are of one length and in one
// order.
type Call struct {
	// Messages are the rows, as they were claimed.
	Messages []*driver.Message
	// Outgoing is what the broker gets of them.
	Outgoing []brokers.Message
	// Results are the broker's answers; nil in Publishing.
	Results []brokers.Result
	// Began is when the call began, by this process's clock.
	Began time.Time
	// Took is how long the broker took; 0 in Publishing.
	Took time.Duration

	clock *clock
	batch *driver.Batch // that the messages were claimed with
}

// Age is how long ago message i was written when this call ended (in Publishing: when it began), by
// the database's clock as an engine knows it: to within half of a round trip to the database, and
// never below 0. A processor that no engine has made trusts that its own clock is the database's.
func (c *Call) Age(i int) time.Duration {
	return max(0, c.clock.of(c.Began.Add(c.Took)).Sub(c.Messages[i].CreatedAt))
}

// Observers makes one observer of several; those that are nil do not count. Each method is called
// in the given order, and the context of Publishing goes through all. The result is nil where no
// observer is left.
func Observers(list ...Observer) Observer {
	var all observers
	for _, observer := range list {
		if observer != nil {
			all = append(all, observer)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

type observers []Observer

// Observe implements Observer.
func (o observers) Observe(database, broker string) ProcessorObserver {
	var all processorObservers
	for _, observer := range o {
		if one := observer.Observe(database, broker); one != nil {
			all = append(all, one)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

type processorObservers []ProcessorObserver

// Claimed implements ProcessorObserver.
func (o processorObservers) Claimed(ctx context.Context, rows int, took time.Duration) {
	for _, one := range o {
		one.Claimed(ctx, rows, took)
	}
}

// Publishing implements ProcessorObserver.
func (o processorObservers) Publishing(ctx context.Context, call *Call) context.Context {
	for _, one := range o {
		ctx = one.Publishing(ctx, call) //nolint:fatcontext // each is to see what the ones before it have added
	}
	return ctx
}

// Published implements ProcessorObserver.
func (o processorObservers) Published(ctx context.Context, call *Call) {
	for _, one := range o {
		one.Published(ctx, call)
	}
}

// Completing implements ProcessorObserver.
func (o processorObservers) Completing(ctx context.Context, completion *driver.Completion) {
	for _, one := range o {
		one.Completing(ctx, completion)
	}
}

// LeaseLost implements ProcessorObserver.
func (o processorObservers) LeaseLost(ctx context.Context, rows int) {
	for _, one := range o {
		one.LeaseLost(ctx, rows)
	}
}

// clock knows how far the clock of a database is from this process's. Only observers ask for that:
// leases and delays are the database's own.
type clock struct {
	store  driver.Delivery
	offset atomic.Int64 // the database's minus ours, in nanoseconds
}

// look compares the clocks. What lies within the doubt counts as none.
func (c *clock) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	found, err := c.store.Diagnose(ctx)
	switch {
	case err != nil: // the processors tell what fails for long
	case found.ClockOffset.Abs() <= found.ClockError:
		c.offset.Store(0)
	default:
		c.offset.Store(int64(found.ClockOffset))
	}
}

// of is what the database's clock shows when this process's shows t.
func (c *clock) of(t time.Time) time.Time {
	if c == nil {
		return t
	}
	return t.Add(time.Duration(c.offset.Load()))
}
