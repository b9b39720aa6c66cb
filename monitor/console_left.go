package monitor

import (
	"context"
	"slices"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// hurried are the states of pending rows that a requeue changes. The others wait for no time of their
// own.
var hurried = []outbox.State{outbox.StateScheduled, outbox.StateBackoff, outbox.StateStranded}

// spared counts, before an action, the rows that it names and will leave as they are, by what they
// are: claimed by a worker; pending, and waiting for what a requeue does not change, such as an earlier
// message of their key; or, of messages that are named by their ids, of a status that the action is
// not for. No more rows than maxFailures are read for each broker and status, and no more ids than
// maxLookedUp.
func (r *run) spared(ctx context.Context) error {
	s := &spared{action: &r.action}
	look := s.selected
	if len(r.action.Filter.MessageIDs) > 0 {
		look = s.named
	}
	err := look(ctx, r)
	r.result.Left, r.result.LeftMore = s.left, s.more
	return err
}

// waiting counts, after a requeue that found nothing to change, the pending rows that its filter selects and that wait for a time:
// it would have taken them, had it named their status. No more than maxFailures of each broker are looked at.
func (r *run) waiting(ctx context.Context) error {
	filter, result := r.action.Filter, &r.result
	if r.action.Verb != VerbRequeue || result.Matched.N+result.Changed+result.Refused > 0 || r.action.Fingerprint != "" ||
		len(filter.MessageIDs) > 0 || slices.Contains(filter.Statuses, outbox.StatusPending) {
		return nil
	}
	brokers, err := r.console.brokersOf(ctx, r.database, filter.Broker)
	if err != nil {
		return err
	}
	for _, broker := range brokers {
		request := admin.ListRequest{Broker: broker, Status: outbox.StatusPending, Filter: filter}
		more, err := r.console.walk(ctx, r.database, request, maxFailures, func(record *admin.Record) {
			if !slices.Contains(hurried, record.State) {
				return
			}
			if result.Left == nil {
				result.Left = map[string]int64{}
			}
			result.Left[string(outbox.StatusPending)]++
		})
		if err != nil {
			return err
		}
		result.LeftMore = result.LeftMore || more
	}
	return nil
}

// spared is what an action leaves as it is.
type spared struct {
	action *Action
	left   map[string]int64
	more   bool // not all rows were looked at
}

// note counts a row if it is left.
func (s *spared) note(record *admin.Record) {
	var what string
	switch statuses := s.action.Filter.Statuses; {
	case record.Status == outbox.StatusProcessing && record.State == outbox.StateClaimed:
		what = string(outbox.StateClaimed)
	case !slices.Contains(statuses, record.Status):
		what = string(record.Status)
	case s.action.Verb == VerbRequeue && record.Status == outbox.StatusPending && !slices.Contains(hurried, record.State):
		what = string(record.State)
	default:
		return
	}
	if s.left == nil {
		s.left = map[string]int64{}
	}
	s.left[what]++
}

// named looks at the rows of messages that the filter names.
func (s *spared) named(ctx context.Context, r *run) error {
	ids := s.action.Filter.MessageIDs
	s.more = len(ids) > maxLookedUp
	for _, id := range ids[:min(len(ids), maxLookedUp)] {
		records, err := r.console.Message(ctx, r.database, id)
		if err != nil {
			return err
		}
		for i := range records {
			if broker := s.action.Filter.Broker; broker == "" || broker == records[i].Broker {
				s.note(&records[i])
			}
		}
	}
	return nil
}

// selected looks at the rows that the filter selects and that may be left.
func (s *spared) selected(ctx context.Context, r *run) error {
	filter := &s.action.Filter
	var statuses []outbox.Status
	if slices.Contains(filter.Statuses, outbox.StatusProcessing) {
		statuses = append(statuses, outbox.StatusProcessing)
	}
	if s.action.Verb == VerbRequeue && slices.Contains(filter.Statuses, outbox.StatusPending) {
		statuses = append(statuses, outbox.StatusPending)
	}
	if len(statuses) == 0 || s.action.Fingerprint != "" {
		return nil
	}
	brokers, err := r.console.brokersOf(ctx, r.database, filter.Broker)
	if err != nil {
		return err
	}
	for _, broker := range brokers {
		for _, status := range statuses {
			request := admin.ListRequest{Broker: broker, Status: status, Filter: *filter}
			more, err := r.console.walk(ctx, r.database, request, maxFailures, s.note)
			if err != nil {
				return err
			}
			s.more = s.more || more
		}
	}
	return nil
}
