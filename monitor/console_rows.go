package monitor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// maxMatched is where counting what matches ends.
	maxMatched = 100_000
	// maxCollected is how many rows are taken together, in memory, to be changed: 32 bytes each.
	maxCollected = 1_000_000
)

// rows changes what the filter selects.
//
// Rows that come back, by requeue or replay, may be in the same status again before the next chunk
// is looked for: they must be taken together first, or the same ones were taken over and over.
// Abandoned rows do not come back, and neither do pending ones that were hurried, acknowledged and
// discarded ones, and those whose keys go on: there the store finds the next ones by itself.
func (r *run) rows(ctx context.Context) error {
	filter := r.action.Filter
	if err := r.prepare(ctx); err != nil {
		return err
	}
	switch {
	case len(filter.MessageIDs) > 0:
		return r.named(ctx)
	case r.action.Fingerprint == "" && (r.action.Verb != VerbRequeue && r.action.Verb != VerbReplay || r.action.Limit > 0 && r.action.Limit <= actionChunk):
		matched, err := r.matches(ctx, filter)
		if err != nil {
			return err
		}
		r.result.Matched = matched
		return r.found(ctx, filter)
	}
	waiting := filter // pending ones that wait for a time
	waiting.Statuses = []outbox.Status{outbox.StatusPending}
	hurries := slices.Contains(filter.Statuses, outbox.StatusPending)
	filter.Statuses = slices.DeleteFunc(slices.Clone(filter.Statuses), func(s outbox.Status) bool { return s == outbox.StatusPending })

	rows, more, err := r.collect(ctx, filter)
	if err != nil {
		return err
	}
	r.result.Matched = admin.Count{N: int64(len(rows)), More: more}
	if hurries {
		matched, err := r.matches(ctx, waiting)
		if err != nil {
			return err
		}
		r.result.Matched = sum(r.result.Matched, matched)
	}
	if err := r.collected(ctx, filter, rows); err != nil || !hurries {
		return err
	}
	return r.found(ctx, waiting)
}

// call does it to no more than limit rows.
func (r *run) call(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	switch r.action.Verb {
	case VerbRequeue:
		if r.action.TTL > 0 {
			return r.store.Requeue(ctx, filter, limit, admin.WithTTL(r.action.TTL))
		}
		return r.store.Requeue(ctx, filter, limit)
	case VerbReplay:
		return r.store.Replay(ctx, filter, limit)
	case VerbAcknowledge:
		return r.store.Acknowledge(ctx, filter, limit)
	case VerbDiscard:
		return r.store.Discard(ctx, filter, limit)
	case VerbUnblock:
		return r.store.Unblock(ctx, filter, limit)
	default:
		return r.store.Abandon(ctx, filter, r.action.Reason, limit)
	}
}

// found lets the store find the rows, chunk by chunk, and no more than were there when it began,
// where they could be counted.
func (r *run) found(ctx context.Context, filter admin.Filter) error {
	most := r.result.Matched
	for {
		limit := r.left()
		if !most.More {
			limit = int(min(int64(limit), most.N-r.result.Changed))
		}
		if limit <= 0 {
			return nil
		}
		n, err := r.call(ctx, filter, limit)
		if n > 0 || err == nil {
			r.done(n)
		}
		if err != nil || n < limit {
			return err
		}
	}
}

// named changes the rows of certain messages: each broker has at most one of each.
func (r *run) named(ctx context.Context) error {
	brokers, err := r.console.brokersOf(ctx, r.database, r.action.Filter.Broker)
	if err != nil {
		return err
	}
	if r.action.Fingerprint != "" {
		rows, err := r.lookUp(ctx, r.action.Filter)
		if err != nil {
			return err
		}
		r.result.Matched = admin.Count{N: int64(len(rows))}
		return r.collected(ctx, r.action.Filter, rows)
	}
	matched, err := r.matches(ctx, r.action.Filter)
	if err != nil {
		return err
	}
	r.result.Matched = matched
	for _, broker := range brokers {
		filter := r.action.Filter
		filter.Broker = broker
		for ids := range slices.Chunk(r.action.Filter.MessageIDs, actionChunk) {
			if err := r.chunk(ctx, filter, ids); err != nil || r.left() <= 0 {
				return err
			}
		}
	}
	return nil
}

// chunk changes the rows that one broker has of some messages.
func (r *run) chunk(ctx context.Context, filter admin.Filter, ids []string) error {
	filter.MessageIDs = ids
	limit := min(r.left(), len(ids))
	if limit <= 0 {
		return nil
	}
	n, err := r.call(ctx, filter, limit)
	if n > 0 || err == nil {
		r.done(n)
	}
	return err
}

// collected changes rows that were looked up before, oldest first within each broker.
func (r *run) collected(ctx context.Context, filter admin.Filter, rows []taken) error {
	slices.SortFunc(rows, func(a, b taken) int { return cmp.Or(cmp.Compare(a.broker, b.broker), cmp.Compare(a.id, b.id)) })
	for len(rows) > 0 && r.left() > 0 {
		n := 1
		for n < min(len(rows), r.left()) && rows[n].broker == rows[0].broker {
			n++
		}
		ids := make([]string, n)
		for i := range ids {
			ids[i] = rows[i].message.String()
		}
		filter.Broker = rows[0].broker
		if err := r.chunk(ctx, filter, ids); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// taken is a row that an action will change.
type taken struct {
	id      int64
	message uuid.UUID
	broker  string
}

// collect takes together what the filter and the fingerprint select, newest first. more is true
// when there are others.
func (r *run) collect(ctx context.Context, filter admin.Filter) (rows []taken, more bool, err error) {
	brokers, err := r.console.brokersOf(ctx, r.database, filter.Broker)
	if err != nil {
		return nil, false, err
	}
	for _, broker := range brokers {
		for _, status := range filter.Statuses {
			request := admin.ListRequest{Broker: broker, Status: status, Filter: filter}
			prints := newPrints(broker)
			beyond, err := r.console.walk(ctx, r.database, request, maxCollected-len(rows), func(record *admin.Record) {
				rows = r.take(rows, record, prints)
			})
			if err != nil {
				return nil, false, err
			}
			more = more || beyond
		}
	}
	return rows, more, nil
}

// take adds a row unless its error is another one than that of the action.
func (r *run) take(rows []taken, record *admin.Record, prints *prints) []taken {
	message, err := uuid.Parse(record.MessageID)
	if err != nil || r.action.Fingerprint != "" && prints.of(record) != r.action.Fingerprint {
		return rows
	}
	if !r.wanted(record) {
		return rows
	}
	if r.action.refuses() && record.LastError != nil && record.LastError.Class == outbox.ClassMalformed {
		r.result.Refused++
		return rows
	}
	return append(rows, taken{id: record.ID, message: message, broker: record.Broker})
}

// wanted tests what a list does not.
func (r *run) wanted(record *admin.Record) bool {
	f := &r.action.Filter
	return strings.HasPrefix(record.OrderingKey, f.KeyPrefix) &&
		(!f.Unacknowledged || record.LastError == nil || !record.LastError.Acknowledged) &&
		(!f.Blocking || r.blocking[row{record.Broker, record.MessageID}])
}

// prepare reads for which rows keys wait, where rows are taken together that are to be such.
func (r *run) prepare(ctx context.Context) (err error) {
	if r.action.Fingerprint != "" && r.action.Filter.Blocking {
		r.blocking, err = r.console.blocking(ctx, r.database, r.action.Filter.Broker, maxCollected)
	}
	return err
}

// lookUp takes those of the named messages that the filter and the fingerprint select. What the
// filter says beside them, the store tests.
func (r *run) lookUp(ctx context.Context, filter admin.Filter) ([]taken, error) {
	var rows []taken
	for _, id := range filter.MessageIDs {
		records, err := r.console.Message(ctx, r.database, id)
		if err != nil {
			return nil, err
		}
		for i := range records {
			if (filter.Broker == "" || records[i].Broker == filter.Broker) && slices.Contains(filter.Statuses, records[i].Status) {
				rows = r.take(rows, &records[i], newPrints(records[i].Broker))
			}
		}
	}
	return rows, nil
}

// matches counts what a filter selects, also beyond the limit of the action.
func (r *run) matches(ctx context.Context, filter admin.Filter) (admin.Count, error) {
	const most = maxMatched
	count := func(filter admin.Filter, most int) (int, error) {
		return ask(ctx, r.console, r.database, func(ctx context.Context, store admin.Administration) (int, error) {
			return store.Matches(ctx, filter, most)
		})
	}
	refused := 0
	if r.action.refuses() {
		malformed := filter
		malformed.ErrorClass = outbox.ClassMalformed
		var err error
		if refused, err = count(malformed, maxMatched); err != nil {
			return admin.Count{}, err
		}
		r.result.Refused += int64(refused)
	}
	n, err := count(filter, most+1+refused)
	if n -= refused; n > most {
		return admin.Count{N: int64(most), More: true}, err
	}
	return admin.Count{N: int64(max(n, 0))}, err
}
