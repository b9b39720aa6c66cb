//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/inbox"
)

// sums are the projection of the events of an account, as it is or as it should be.
type sums struct{ events, total int64 }

// ConsumerVerdict is the state of the projection of a broker's events, which is kept with the
// inbox.
type ConsumerVerdict struct {
	Broker      string `json:"broker"`
	Expected    int64  `json:"expected"` // committed events routed to it
	Handled     int64  `json:"handled"`  // as the sums say
	Sums        int    `json:"sums"`     // of accounts
	Right       int    `json:"right"`    // of them
	Dropped     int    `json:"dropped"`  // duplicates
	DeadLetters int64  `json:"dead_letters"`
	OutOfOrder  int64  `json:"out_of_order"` // events that were handled behind a later one of their account
	Ordered     bool   `json:"ordered"`      // that must not be
}

// makeInbox makes the table of the inbox.
func (s *fixture) makeInbox(ctx context.Context) error {
	db, err := gorm.Open(s.database.gorm(s.servers.database.url), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	_, err = inbox.Migrate(ctx, db)
	return errors.Join(err, pool.Close())
}

// due are the sums that a broker's consumer must reach, by account.
func (e *evidence) due(b *broker) map[string]sums {
	due := map[string]sums{}
	for _, is := range e.facts {
		if b.takes(is) {
			s := due[is.account]
			due[is.account] = sums{s.events + 1, s.total + is.seq}
		}
	}
	return due
}

// judgeConsumers holds the projections against what was committed.
func (e *evidence) judgeConsumers(d *findings) {
	for i := range e.consumers {
		v := &e.consumers[i]
		b := e.brokers[i]
		v.Dropped, v.OutOfOrder, v.Ordered = e.dropped[v.Broker], e.behind[v.Broker], b.ordered
		due, is := e.due(b), e.summed[v.Broker]
		accounts := map[string]struct{}{}
		for account, s := range due {
			v.Expected += s.events
			accounts[account] = struct{}{}
		}
		for account, s := range is {
			v.Handled += s.events
			accounts[account] = struct{}{}
		}
		v.Sums = len(accounts)
		for _, account := range slices.Sorted(maps.Keys(accounts)) {
			if due[account] == is[account] {
				v.Right++
				continue
			}
			d.addf(Projection, v.Broker, "%q has %d events with a sum of %d, not %d with %d", account, is[account].events, is[account].total,
				due[account].events, due[account].total)
		}
		if v.Ordered && v.OutOfOrder > 0 {
			d.addf(Disorder, v.Broker, "%d events", v.OutOfOrder)
		}
		if v.DeadLetters > 0 {
			d.addf(DeadLetters, v.Broker, "%d messages", v.DeadLetters)
		}
	}
}

// readProjections reads what consumers have made of the events, and what their inbox has made dead
// letters of.
func (s *fixture) readProjections(ctx context.Context, e *evidence) error {
	e.summed, e.behind = map[string]map[string]sums{}, map[string]int64{}
	for _, b := range s.brokers {
		e.summed[b.name] = map[string]sums{}
		if s.options.Projectors > 0 {
			e.consumers = append(e.consumers, ConsumerVerdict{Broker: b.name})
		}
	}
	return s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		var (
			consumer, account   string
			is                  sums
			behind, deadLetters int64
		)
		const all = "SELECT consumer, account, events, total, behind FROM projections"
		if err := each(ctx, db, all, []any{&consumer, &account, &is.events, &is.total, &behind}, func() error {
			e.summed[consumer][account] = is
			if account != "" { // else it has no place in the order
				e.behind[consumer] += behind
			}
			return nil
		}); err != nil {
			return fmt.Errorf("chaos: read the projections: %w", err)
		}
		const dead = "SELECT consumer, count(*) FROM inbox_messages WHERE status = 'dead_letter' GROUP BY consumer"
		if err := each(ctx, db, dead, []any{&consumer, &deadLetters}, func() error {
			for i := range e.consumers {
				if e.consumers[i].Broker == consumer {
					e.consumers[i].DeadLetters = deadLetters
				}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("chaos: read the inbox: %w", err)
		}
		return nil
	})
}
