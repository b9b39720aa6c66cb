package monitor

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// errBusy is why a purge has to wait.
var errBusy = errors.New("another process is removing finished rows from this database: try again later")

// ages are the statuses that a purge removes, and how old their rows must be.
func (a *Action) ages() map[outbox.Status]time.Duration {
	ages := map[outbox.Status]time.Duration{}
	if a.PublishedBefore > 0 {
		ages[outbox.StatusPublished] = a.PublishedBefore
	}
	if a.AbandonedBefore > 0 {
		ages[outbox.StatusAbandoned] = a.AbandonedBefore
	}
	return ages
}

// purge runs when no cleaner does: both take the same name.
func (r *run) purge(ctx context.Context) error {
	ran, err := r.store.Exclusive(ctx, "cleanup", func(ctx context.Context) error {
		brokers, err := r.finished(ctx)
		if err != nil {
			return err
		}
		for _, broker := range brokers {
			for status, age := range r.action.ages() {
				if err := r.drain(ctx, admin.PurgeRequest{Broker: broker, Status: status, Retention: age}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && !ran {
		return errBusy
	}
	r.result.Matched = admin.Count{N: r.result.Changed}
	return err
}

func (r *run) drain(ctx context.Context, request admin.PurgeRequest) error {
	for {
		if request.Limit = r.left(); request.Limit <= 0 {
			return nil
		}
		n, err := r.store.Purge(ctx, request)
		if n > 0 {
			r.result.Matched.N += int64(n)
			r.done(n)
		}
		if err != nil || n < request.Limit {
			return err
		}
	}
}

// finished are the brokers that a purge is for.
func (r *run) finished(ctx context.Context) ([]string, error) {
	if broker := r.action.Filter.Broker; broker != "" {
		return []string{broker}, nil
	}
	return ask(ctx, r.console, r.database, func(ctx context.Context, store admin.Administration) ([]string, error) {
		return store.FinishedBrokers(ctx)
	})
}

// countOld counts the rows that a purge would remove, up to 10,000 of each broker and status, by this
// machine's clock.
func (r *run) countOld(ctx context.Context) error {
	brokers, err := r.finished(ctx)
	if err != nil {
		return err
	}
	waiting, err := r.waitedFor(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, broker := range brokers {
		for status, age := range r.action.ages() {
			var n int64
			request := admin.ListRequest{Broker: broker, Status: status, After: admin.Position{Time: now.Add(-age), ID: math.MaxInt64}}
			more, err := r.console.walk(ctx, r.database, request, maxFailures, func(record *admin.Record) {
				if !waiting[row{record.Broker, record.MessageID}] {
					n++
				}
			})
			if err != nil {
				return err
			}
			r.result.Matched = sum(r.result.Matched, admin.Count{N: n, More: more})
		}
	}
	if most := int64(r.action.Limit); most > 0 && r.result.Matched.N > most {
		r.result.Matched = admin.Count{N: most, More: true}
	}
	return nil
}

// waitedFor are the abandoned rows, by broker and message, for which a key waits: a purge spares
// them.
func (r *run) waitedFor(ctx context.Context) (map[row]bool, error) {
	if r.action.AbandonedBefore == 0 {
		return nil, nil //nolint:nilnil // a map of nothing can be asked
	}
	return r.console.blocking(ctx, r.database, r.action.Filter.Broker, maxFailures)
}

// row is a row of a message.
type row struct{ broker, message string }

// blocking are the rows for which keys wait until an operator acts, so many at most.
func (c *Console) blocking(ctx context.Context, database, broker string, most int) (map[row]bool, error) {
	keys, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) ([]admin.BlockedKey, error) {
		return store.BlockedKeys(ctx, broker, most)
	})
	rows := make(map[row]bool, len(keys))
	for _, key := range keys {
		rows[row{key.Broker, key.MessageID}] = true
	}
	return rows, err
}

func sum(a, b admin.Count) admin.Count { return admin.Count{N: a.N + b.N, More: a.More || b.More} }
