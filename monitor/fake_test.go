package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fake is a store in memory that knows the rules of an operator's statements, and can be down.
type fake struct {
	admin.Administration // nothing else of it is called
	mu                   sync.Mutex
	rows                 []admin.Record
	pauses               []admin.Pause
	deferred             []admin.BlockedKey
	blocked              []admin.KeyBlock
	instances            []admin.Instance
	audit                []admin.AuditEntry
	overview             func(*admin.BrokerOverview)
	down                 error
	busy                 bool
	searched             int
	slow                 bool           // searches take too long
	calls                []admin.Filter // of requeue, replay and abandon
	changed              []int64        // ids, in the order of their changes
	after                func()         // is called after each change, with the lock held
	badAudit             error
	endErr               error
	endCtx               error // what the context of EndAudit said
}

func (f *fake) add(n int, change func(i int, r *admin.Record)) *fake {
	for i := range n {
		id := int64(len(f.rows) + 1)
		r := admin.Record{
			ID: id, MessageID: uuid.NewString(), Broker: "default", Status: outbox.StatusPending, Stream: "orders", Type: "Ordering.Placed",
			CreatedAt: start.Add(time.Duration(id) * time.Second), Payload: []byte("{}"), PayloadBytes: 2,
		}
		change(i, &r)
		if r.Status.Terminal() && r.FinishedAt.IsZero() {
			r.FinishedAt = r.CreatedAt.Add(time.Minute)
		}
		f.rows = append(f.rows, r)
	}
	return f
}

func failed(class, message string) func(int, *admin.Record) {
	return func(i int, r *admin.Record) {
		r.Status = outbox.StatusFailed
		r.LastError = &outbox.LastError{Class: class, Message: fmt.Sprintf(message, i), At: r.CreatedAt, Attempt: 1}
	}
}

func (f *fake) lock() (unlock func(), err error) {
	f.mu.Lock()
	return f.mu.Unlock, f.down
}

func matches(r *admin.Record, filter *admin.Filter) bool {
	exact, prefix := filter.TypePattern()
	return (filter.Broker == "" || r.Broker == filter.Broker) &&
		(len(filter.Statuses) == 0 || slices.Contains(filter.Statuses, r.Status)) &&
		(exact == "" || r.Type == exact) && strings.HasPrefix(r.Type, prefix) &&
		(filter.Key == "" || r.OrderingKey == filter.Key) &&
		(len(filter.MessageIDs) == 0 || slices.Contains(filter.MessageIDs, r.MessageID)) &&
		(filter.ErrorClass == "" || r.LastError != nil && r.LastError.Class == filter.ErrorClass) &&
		!r.CreatedAt.Before(filter.Since) && (filter.Until.IsZero() || r.CreatedAt.Before(filter.Until))
}

func (f *fake) operate(ctx context.Context, filter admin.Filter, limit int, to outbox.Status, allowed ...outbox.Status) (int, error) {
	unlock, err := f.lock()
	defer unlock()
	filter, bad := filter.For("test", limit, allowed...)
	if err = errors.Join(err, bad, ctx.Err()); err != nil {
		return 0, err
	}
	f.calls = append(f.calls, filter)
	n := 0
	for i := range f.rows {
		if n < limit && matches(&f.rows[i], &filter) && (to == outbox.StatusAbandoned || f.rows[i].Status != outbox.StatusPending || !f.rows[i].AvailableAt.IsZero()) {
			f.rows[i].Status, f.rows[i].AvailableAt = to, time.Time{}
			f.changed = append(f.changed, f.rows[i].ID)
			n++
		}
	}
	if f.after != nil {
		f.after()
	}
	return n, nil
}

func (f *fake) Requeue(ctx context.Context, filter admin.Filter, limit int, _ ...admin.RequeueOption) (int, error) {
	return f.operate(ctx, filter, limit, outbox.StatusPending, admin.RequeueStatuses()...)
}

func (f *fake) Replay(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return f.operate(ctx, filter, limit, outbox.StatusPending, outbox.StatusPublished)
}

func (f *fake) Abandon(ctx context.Context, filter admin.Filter, _ string, limit int) (int, error) {
	return f.operate(ctx, filter, limit, outbox.StatusAbandoned, admin.AbandonStatuses()...)
}

func (f *fake) Matches(_ context.Context, filter admin.Filter, limit int) (int, error) {
	unlock, err := f.lock()
	defer unlock()
	n := 0
	for i := range f.rows {
		if matches(&f.rows[i], &filter) {
			n++
		}
	}
	return min(n, limit), err
}

func (f *fake) UnblockKey(_ context.Context, broker, key string) (bool, error) {
	unlock, err := f.lock()
	defer unlock()
	n := len(f.deferred)
	f.deferred = slices.DeleteFunc(f.deferred, func(k admin.BlockedKey) bool { return k.Broker == broker && k.Key == key })
	return len(f.deferred) < n, err
}

func (f *fake) BlockedKeys(context.Context, string, int) ([]admin.BlockedKey, error) {
	unlock, err := f.lock()
	defer unlock()
	return slices.Clone(f.deferred), err
}

func (f *fake) Overview(ctx context.Context, limit int) ([]admin.BrokerOverview, error) {
	unlock, err := f.lock()
	defer unlock()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	by := map[string]*admin.BrokerOverview{}
	for i := range f.rows {
		r := &f.rows[i]
		o := by[r.Broker]
		if o == nil {
			o = &admin.BrokerOverview{Broker: r.Broker, Counts: map[outbox.Status]admin.Count{}, OldestPending: time.Minute, Lag: time.Second}
			by[r.Broker] = o
		}
		c := o.Counts[r.Status]
		if c.N < int64(limit) {
			c.N++
		} else {
			c.More = true
		}
		o.Counts[r.Status] = c
		if r.LastError != nil {
			o.LastError = r.LastError
		}
		if r.FinishedAt.After(o.LastPublished) && r.Status == outbox.StatusPublished {
			o.LastPublished = r.FinishedAt
		}
	}
	var list []admin.BrokerOverview
	for _, o := range by {
		if f.overview != nil {
			f.overview(o)
		}
		list = append(list, *o)
	}
	slices.SortFunc(list, func(a, b admin.BrokerOverview) int { return strings.Compare(a.Broker, b.Broker) })
	return list, nil
}

func position(r *admin.Record) admin.Position {
	if r.Status.Terminal() {
		return admin.Position{Time: r.FinishedAt, ID: r.ID}
	}
	return admin.Position{ID: r.ID}
}

func (f *fake) List(ctx context.Context, q admin.ListRequest) (admin.List, error) {
	unlock, err := f.lock()
	defer unlock()
	if err = errors.Join(err, ctx.Err()); err != nil || q.Limit < 1 || q.Scan < q.Limit || q.Broker == "" || !q.Status.Valid() {
		return admin.List{}, cmp.Or(err, fmt.Errorf("bad request %+v", q))
	}
	var all []*admin.Record
	for i := range f.rows {
		if f.rows[i].Broker == q.Broker && f.rows[i].Status == q.Status {
			all = append(all, &f.rows[i])
		}
	}
	slices.SortFunc(all, func(a, b *admin.Record) int {
		return cmp.Or(position(b).Time.Compare(position(a).Time), cmp.Compare(b.ID, a.ID))
	})
	var list admin.List
	filter := q.Filter
	filter.Broker, filter.Statuses = "", nil
	for i, r := range all {
		p := position(r)
		if q.After != (admin.Position{}) && (p.Time.After(q.After.Time) || p.Time.Equal(q.After.Time) && p.ID >= q.After.ID) {
			continue
		}
		list.Scanned++
		if matches(r, &filter) {
			one := *r
			one.Payload, one.Headers = nil, ""
			list.Records = append(list.Records, one)
		}
		if (len(list.Records) == q.Limit || list.Scanned == q.Scan) && i < len(all)-1 {
			list.Next = p
			break
		}
	}
	return list, nil
}

func (f *fake) Message(_ context.Context, id string) ([]admin.Record, error) {
	unlock, err := f.lock()
	defer unlock()
	var found []admin.Record
	for i := range f.rows {
		if f.rows[i].MessageID == id {
			found = append(found, f.rows[i])
		}
	}
	return found, err
}

func (f *fake) Event(ctx context.Context, id string) ([]admin.Record, error) {
	return f.Message(ctx, id)
}

// Find knows terms that are whole values.
func (f *fake) Find(_ context.Context, q admin.FindRequest) (admin.Found, error) {
	unlock, err := f.lock()
	defer unlock()
	if f.searched++; f.slow {
		return admin.Found{}, context.DeadlineExceeded
	}
	if err != nil {
		return admin.Found{}, err
	}
	var found admin.Found
	for _, r := range slices.Backward(f.rows) {
		var by []admin.FindBy
		for what, value := range map[admin.FindBy]string{
			admin.ByMessage: r.MessageID, admin.ByKey: r.OrderingKey, admin.ByCorrelation: r.CorrelationID, admin.ByCausation: r.CausationID, admin.ByTenant: r.TenantID,
		} {
			if value == q.Term && slices.Contains(q.By, what) {
				by = append(by, what)
			}
		}
		switch {
		case by == nil || q.After.ID != 0 && r.ID >= q.After.ID:
		case len(found.Records) == q.Limit:
			found.Next = admin.Position{ID: found.Records[q.Limit-1].ID}
			return found, nil
		default:
			slices.Sort(by)
			found.Records, found.By = append(found.Records, r), append(found.By, by)
		}
	}
	return found, nil
}

func (f *fake) KeyBlocks(context.Context, string, int, int) (admin.KeyBlocks, error) {
	unlock, err := f.lock()
	defer unlock()
	return admin.KeyBlocks{Keys: f.blocked, Waiting: admin.KeyCount{Keys: admin.Count{N: int64(len(f.blocked))}}}, err
}

func (f *fake) BeginAudit(_ context.Context, e admin.AuditEntry) (int64, error) {
	unlock, err := f.lock()
	defer unlock()
	if err := cmp.Or(err, f.badAudit); err != nil {
		return 0, err
	}
	e.ID, e.StartedAt = int64(len(f.audit)+1), start
	f.audit = append(f.audit, e)
	return e.ID, nil
}

func (f *fake) EndAudit(ctx context.Context, id, rows int64, failure string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endCtx = ctx.Err()
	e := &f.audit[id-1]
	e.Rows, e.Failure, e.EndedAt = rows, failure, start.Add(time.Second)
	return f.endErr
}

func (f *fake) Audit(_ context.Context, before int64, limit int) ([]admin.AuditEntry, error) {
	unlock, err := f.lock()
	defer unlock()
	var list []admin.AuditEntry
	for i := len(f.audit) - 1; i >= 0 && len(list) < limit; i-- {
		if before == 0 || f.audit[i].ID < before {
			list = append(list, f.audit[i])
		}
	}
	return list, err
}

func (f *fake) Pause(_ context.Context, p admin.Pause) (bool, error) {
	unlock, err := f.lock()
	defer unlock()
	if err != nil || slices.ContainsFunc(f.pauses, func(o admin.Pause) bool { return o.Broker == p.Broker }) {
		return false, err
	}
	p.Since = start
	f.pauses = append(f.pauses, p)
	return true, nil
}

func (f *fake) Resume(_ context.Context, broker string) (bool, error) {
	unlock, err := f.lock()
	defer unlock()
	n := len(f.pauses)
	f.pauses = slices.DeleteFunc(f.pauses, func(p admin.Pause) bool { return p.Broker == broker })
	return len(f.pauses) < n, err
}

func (f *fake) Pauses(ctx context.Context) ([]admin.Pause, error) {
	unlock, err := f.lock()
	defer unlock()
	return slices.Clone(f.pauses), errors.Join(err, ctx.Err())
}

func (*fake) Know(...string) {}

func (f *fake) FinishedBrokers(context.Context) ([]string, error) {
	unlock, err := f.lock()
	defer unlock()
	var names []string
	for i := range f.rows {
		if f.rows[i].Status.Terminal() && !slices.Contains(names, f.rows[i].Broker) {
			names = append(names, f.rows[i].Broker)
		}
	}
	slices.Sort(names)
	return names, err
}

func (f *fake) Purge(_ context.Context, q admin.PurgeRequest) (int, error) {
	unlock, err := f.lock()
	defer unlock()
	n := 0
	f.rows = slices.DeleteFunc(f.rows, func(r admin.Record) bool {
		if n < q.Limit && r.Broker == q.Broker && r.Status == q.Status && time.Since(r.FinishedAt) > q.Retention {
			n++
			return true
		}
		return false
	})
	return n, err
}

func (f *fake) Exclusive(ctx context.Context, name string, do func(context.Context) error) (bool, error) {
	if name != "cleanup" || f.busy {
		return false, nil
	}
	return true, do(ctx)
}

func (f *fake) Instances(context.Context) ([]admin.Instance, error) {
	unlock, err := f.lock()
	defer unlock()
	return f.instances, err
}

func (f *fake) Backlog(context.Context) ([]admin.Backlog, error)     { return nil, nil }
func (f *fake) Counts(context.Context) ([]admin.BrokerCounts, error) { return nil, nil }

func consoleOf(f *fake, opts ...Option) *Console {
	return NewConsole(map[string]admin.Administration{"main": f}, opts...)
}
