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

// store is a tenant's database while it is open.
type store = admin.Administration

// use opens the database for a question.
func (d *onDemand) use(ctx context.Context, ask func(context.Context, store) error) error {
	if s, ok := ctx.Value(opened{d}).(store); ok {
		return ask(ctx, s)
	}
	select {
	case d.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.places }()
	s, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // nothing is left to be written
	if len(d.brokers) > 0 {
		s.Know(d.brokers...)
	}
	return ask(context.WithValue(ctx, opened{d}, store(s)), s)
}

// answer is [onDemand.use] of a question that has an answer.
func answer[T any](ctx context.Context, d *onDemand, ask func(context.Context, store) (T, error)) (T, error) {
	var got T
	err := d.use(ctx, func(ctx context.Context, s store) (err error) {
		got, err = ask(ctx, s)
		return err
	})
	return got, err
}

// Close implements administration.
func (d *onDemand) Close() error { return nil }

// Know implements admin.Administration.
func (d *onDemand) Know(brokers ...string) { d.brokers = brokers }

// Requeue implements admin.Administration.
func (d *onDemand) Requeue(ctx context.Context, filter admin.Filter, limit int, opts ...admin.RequeueOption) (int, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int, error) { return s.Requeue(ctx, filter, limit, opts...) })
}

// Replay implements admin.Administration.
func (d *onDemand) Replay(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int, error) { return s.Replay(ctx, filter, limit) })
}

// Abandon implements admin.Administration.
func (d *onDemand) Abandon(ctx context.Context, filter admin.Filter, reason string, limit int) (int, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int, error) { return s.Abandon(ctx, filter, reason, limit) })
}

// Matches implements admin.Administration.
func (d *onDemand) Matches(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int, error) { return s.Matches(ctx, filter, limit) })
}

// Acknowledge implements admin.Administration.
func (d *onDemand) Acknowledge(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int, error) { return s.Acknowledge(ctx, filter, limit) })
}

// Discard implements admin.Administration.
func (d *onDemand) Discard(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int, error) { return s.Discard(ctx, filter, limit) })
}

// Unblock implements admin.Administration.
func (d *onDemand) Unblock(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int, error) { return s.Unblock(ctx, filter, limit) })
}

// UnblockKey implements admin.Administration.
func (d *onDemand) UnblockKey(ctx context.Context, broker, key string) (bool, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (bool, error) { return s.UnblockKey(ctx, broker, key) })
}

// BlockedKeys implements admin.Administration.
func (d *onDemand) BlockedKeys(ctx context.Context, broker string, limit int) ([]admin.BlockedKey, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.BlockedKey, error) {
		return s.BlockedKeys(ctx, broker, limit)
	})
}

// Overview implements admin.Administration.
func (d *onDemand) Overview(ctx context.Context, limit int) ([]admin.BrokerOverview, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.BrokerOverview, error) { return s.Overview(ctx, limit) })
}

// List implements admin.Administration.
func (d *onDemand) List(ctx context.Context, request admin.ListRequest) (admin.List, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (admin.List, error) { return s.List(ctx, request) })
}

// Message implements admin.Administration.
func (d *onDemand) Message(ctx context.Context, id string) ([]admin.Record, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.Record, error) { return s.Message(ctx, id) })
}

// Event implements admin.Administration.
func (d *onDemand) Event(ctx context.Context, id string) ([]admin.Record, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.Record, error) { return s.Event(ctx, id) })
}

// Find implements admin.Administration.
func (d *onDemand) Find(ctx context.Context, request admin.FindRequest) (admin.Found, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (admin.Found, error) { return s.Find(ctx, request) })
}

// KeyBlocks implements admin.Administration.
func (d *onDemand) KeyBlocks(ctx context.Context, broker string, limit, maxCount int) (admin.KeyBlocks, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (admin.KeyBlocks, error) {
		return s.KeyBlocks(ctx, broker, limit, maxCount)
	})
}

// Stranded implements admin.Administration.
func (d *onDemand) Stranded(ctx context.Context, broker string, after admin.Position, limit int) (admin.List, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (admin.List, error) { return s.Stranded(ctx, broker, after, limit) })
}

// Counts implements admin.Administration.
func (d *onDemand) Counts(ctx context.Context) ([]admin.BrokerCounts, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.BrokerCounts, error) { return s.Counts(ctx) })
}

// Backlog implements admin.Administration.
func (d *onDemand) Backlog(ctx context.Context) ([]admin.Backlog, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.Backlog, error) { return s.Backlog(ctx) })
}

// BeginAudit implements admin.Administration.
func (d *onDemand) BeginAudit(ctx context.Context, entry admin.AuditEntry) (int64, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int64, error) { return s.BeginAudit(ctx, entry) })
}

// EndAudit implements admin.Administration.
func (d *onDemand) EndAudit(ctx context.Context, id, rows int64, failure string) error {
	return d.use(ctx, func(ctx context.Context, s store) error { return s.EndAudit(ctx, id, rows, failure) })
}

// Audit implements admin.Administration.
func (d *onDemand) Audit(ctx context.Context, before int64, limit int) ([]admin.AuditEntry, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.AuditEntry, error) { return s.Audit(ctx, before, limit) })
}

// Pause implements admin.Administration.
func (d *onDemand) Pause(ctx context.Context, pause admin.Pause) (bool, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (bool, error) { return s.Pause(ctx, pause) })
}

// Resume implements admin.Administration.
func (d *onDemand) Resume(ctx context.Context, broker string) (bool, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (bool, error) { return s.Resume(ctx, broker) })
}

// Pauses implements admin.Administration.
func (d *onDemand) Pauses(ctx context.Context) ([]admin.Pause, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.Pause, error) { return s.Pauses(ctx) })
}

// Instances implements admin.Administration.
func (d *onDemand) Instances(ctx context.Context) ([]admin.Instance, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]admin.Instance, error) { return s.Instances(ctx) })
}

// FinishedBrokers implements admin.Administration.
func (d *onDemand) FinishedBrokers(ctx context.Context) ([]string, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]string, error) { return s.FinishedBrokers(ctx) })
}

// Purge implements admin.Administration.
func (d *onDemand) Purge(ctx context.Context, request admin.PurgeRequest) (int, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (int, error) { return s.Purge(ctx, request) })
}

// Exclusive implements admin.Administration.
func (d *onDemand) Exclusive(ctx context.Context, name string, f func(context.Context) error) (bool, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (bool, error) { return s.Exclusive(ctx, name, f) })
}

// Migrate implements admin.Administration.
func (d *onDemand) Migrate(ctx context.Context) ([]string, error) {
	return answer(ctx, d, func(ctx context.Context, s store) ([]string, error) { return s.Migrate(ctx) })
}

// Check implements admin.Administration.
func (d *onDemand) Check(ctx context.Context) error {
	return d.use(ctx, func(ctx context.Context, s store) error { return s.Check(ctx) })
}

// Diagnose implements admin.Administration.
func (d *onDemand) Diagnose(ctx context.Context) (admin.Diagnosis, error) {
	return answer(ctx, d, func(ctx context.Context, s store) (admin.Diagnosis, error) { return s.Diagnose(ctx) })
}
