package main

import (
	"context"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// onDemand is a database that is open only while it is asked: there may be more tenants than their server
// takes connections.
type onDemand struct {
	connect func(ctx context.Context) (administration, error)
	places  chan struct{} // of all databases that are opened like this
	brokers []string
}

// maxAsked is how many tenants are open at a time.
const maxAsked = 8

// opened is the key in a context of a database that its caller has opened: see [onDemand.Exclusive].
type opened struct{ *onDemand }

// use opens the database for a question.
func (d *onDemand) use(ctx context.Context, ask func(context.Context, admin.Administration) error) error {
	if store, ok := ctx.Value(opened{d}).(admin.Administration); ok {
		return ask(ctx, store)
	}
	select {
	case d.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.places }()
	store, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // nothing is left to be written
	if len(d.brokers) > 0 {
		store.Know(d.brokers...)
	}
	return ask(context.WithValue(ctx, opened{d}, admin.Administration(store)), store)
}

// Close implements administration.
func (d *onDemand) Close() error { return nil }

// Know implements admin.Administration.
func (d *onDemand) Know(brokers ...string) { d.brokers = brokers }

// Requeue implements admin.Administration.
func (d *onDemand) Requeue(ctx context.Context, filter admin.Filter, limit int, opts ...admin.RequeueOption) (answer int, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Requeue(ctx, filter, limit, opts...)
		return err
	})
	return answer, err
}

// Replay implements admin.Administration.
func (d *onDemand) Replay(ctx context.Context, filter admin.Filter, limit int) (answer int, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Replay(ctx, filter, limit)
		return err
	})
	return answer, err
}

// Abandon implements admin.Administration.
func (d *onDemand) Abandon(ctx context.Context, filter admin.Filter, reason string, limit int) (answer int, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Abandon(ctx, filter, reason, limit)
		return err
	})
	return answer, err
}

// Matches implements admin.Administration.
func (d *onDemand) Matches(ctx context.Context, filter admin.Filter, limit int) (answer int, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Matches(ctx, filter, limit)
		return err
	})
	return answer, err
}

// Acknowledge implements admin.Administration.
func (d *onDemand) Acknowledge(ctx context.Context, filter admin.Filter, limit int) (answer int, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Acknowledge(ctx, filter, limit)
		return err
	})
	return answer, err
}

// Discard implements admin.Administration.
func (d *onDemand) Discard(ctx context.Context, filter admin.Filter, limit int) (answer int, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Discard(ctx, filter, limit)
		return err
	})
	return answer, err
}

// Unblock implements admin.Administration.
func (d *onDemand) Unblock(ctx context.Context, filter admin.Filter, limit int) (answer int, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Unblock(ctx, filter, limit)
		return err
	})
	return answer, err
}

// UnblockKey implements admin.Administration.
func (d *onDemand) UnblockKey(ctx context.Context, broker, key string) (answer bool, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.UnblockKey(ctx, broker, key)
		return err
	})
	return answer, err
}

// BlockedKeys implements admin.Administration.
func (d *onDemand) BlockedKeys(ctx context.Context, broker string, limit int) (answer []admin.BlockedKey, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.BlockedKeys(ctx, broker, limit)
		return err
	})
	return answer, err
}

// Overview implements admin.Administration.
func (d *onDemand) Overview(ctx context.Context, limit int) (answer []admin.BrokerOverview, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Overview(ctx, limit)
		return err
	})
	return answer, err
}

// List implements admin.Administration.
func (d *onDemand) List(ctx context.Context, request admin.ListRequest) (answer admin.List, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.List(ctx, request)
		return err
	})
	return answer, err
}

// Message implements admin.Administration.
func (d *onDemand) Message(ctx context.Context, id string) (answer []admin.Record, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Message(ctx, id)
		return err
	})
	return answer, err
}

// Event implements admin.Administration.
func (d *onDemand) Event(ctx context.Context, id string) (answer []admin.Record, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Event(ctx, id)
		return err
	})
	return answer, err
}

// Find implements admin.Administration.
func (d *onDemand) Find(ctx context.Context, request admin.FindRequest) (answer admin.Found, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Find(ctx, request)
		return err
	})
	return answer, err
}

// KeyBlocks implements admin.Administration.
func (d *onDemand) KeyBlocks(ctx context.Context, broker string, limit, maxCount int) (answer admin.KeyBlocks, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.KeyBlocks(ctx, broker, limit, maxCount)
		return err
	})
	return answer, err
}

// Stranded implements admin.Administration.
func (d *onDemand) Stranded(ctx context.Context, broker string, after admin.Position, limit int) (answer admin.List, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Stranded(ctx, broker, after, limit)
		return err
	})
	return answer, err
}

// Counts implements admin.Administration.
func (d *onDemand) Counts(ctx context.Context) (answer []admin.BrokerCounts, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Counts(ctx)
		return err
	})
	return answer, err
}

// Backlog implements admin.Administration.
func (d *onDemand) Backlog(ctx context.Context) (answer []admin.Backlog, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Backlog(ctx)
		return err
	})
	return answer, err
}

// BeginAudit implements admin.Administration.
func (d *onDemand) BeginAudit(ctx context.Context, entry admin.AuditEntry) (answer int64, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.BeginAudit(ctx, entry)
		return err
	})
	return answer, err
}

// EndAudit implements admin.Administration.
func (d *onDemand) EndAudit(ctx context.Context, id, rows int64, failure string) error {
	return d.use(ctx, func(ctx context.Context, store admin.Administration) error {
		return store.EndAudit(ctx, id, rows, failure)
	})
}

// Audit implements admin.Administration.
func (d *onDemand) Audit(ctx context.Context, before int64, limit int) (answer []admin.AuditEntry, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Audit(ctx, before, limit)
		return err
	})
	return answer, err
}

// Pause implements admin.Administration.
func (d *onDemand) Pause(ctx context.Context, pause admin.Pause) (answer bool, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Pause(ctx, pause)
		return err
	})
	return answer, err
}

// Resume implements admin.Administration.
func (d *onDemand) Resume(ctx context.Context, broker string) (answer bool, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Resume(ctx, broker)
		return err
	})
	return answer, err
}

// Pauses implements admin.Administration.
func (d *onDemand) Pauses(ctx context.Context) (answer []admin.Pause, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Pauses(ctx)
		return err
	})
	return answer, err
}

// Instances implements admin.Administration.
func (d *onDemand) Instances(ctx context.Context) (answer []admin.Instance, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Instances(ctx)
		return err
	})
	return answer, err
}

// FinishedBrokers implements admin.Administration.
func (d *onDemand) FinishedBrokers(ctx context.Context) (answer []string, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.FinishedBrokers(ctx)
		return err
	})
	return answer, err
}

// Purge implements admin.Administration.
func (d *onDemand) Purge(ctx context.Context, request admin.PurgeRequest) (answer int, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Purge(ctx, request)
		return err
	})
	return answer, err
}

// Exclusive implements admin.Administration.
func (d *onDemand) Exclusive(ctx context.Context, name string, f func(context.Context) error) (answer bool, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Exclusive(ctx, name, f)
		return err
	})
	return answer, err
}

// Migrate implements admin.Administration.
func (d *onDemand) Migrate(ctx context.Context) (answer []string, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Migrate(ctx)
		return err
	})
	return answer, err
}

// Check implements admin.Administration.
func (d *onDemand) Check(ctx context.Context) error {
	return d.use(ctx, func(ctx context.Context, store admin.Administration) error { return store.Check(ctx) })
}

// Diagnose implements admin.Administration.
func (d *onDemand) Diagnose(ctx context.Context) (answer admin.Diagnosis, err error) {
	err = d.use(ctx, func(ctx context.Context, store admin.Administration) (err error) {
		answer, err = store.Diagnose(ctx)
		return err
	})
	return answer, err
}
