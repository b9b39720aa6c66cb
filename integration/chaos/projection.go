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
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
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
}

// makeInbox makes the table of the inbox.
func (s *fixture) makeInbox(ctx context.Context) error {
	db, err := gorm.Open(s.database.gorm(s.servers.databaseURL), &gorm.Config{Logger: logger.Discard})
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
func (e *evidence) due(broker string) map[string]sums {
	due := map[string]sums{}
	for _, is := range e.facts {
		if is.published || broker == scenario.Internal {
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
		v.Dropped = e.dropped[v.Broker]
		due, is := e.due(v.Broker), e.summed[v.Broker]
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
		if v.DeadLetters > 0 {
			d.addf(DeadLetters, v.Broker, "%d messages", v.DeadLetters)
		}
	}
}

// projectionsBehind reports whether a consumer has handled fewer events than were committed for it.
func (s *fixture) projectionsBehind(ctx context.Context) (behind bool, err error) {
	if s.options.Projectors <= 0 {
		return false, nil
	}
	err = s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		var (
			events, published, handled int64
			consumer                   string
			done                       = map[string]int64{}
		)
		err := db.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(CASE WHEN published THEN 1 ELSE 0 END), 0) FROM facts").Scan(&events, &published)
		if err == nil {
			err = each(ctx, db, "SELECT consumer, sum(events) FROM projections GROUP BY consumer", []any{&consumer, &handled}, func() error {
				done[consumer] = handled
				return nil
			})
		}
		for _, broker := range scenario.Brokers() {
			want := published
			if broker == scenario.Internal {
				want = events
			}
			behind = behind || done[broker] < want
		}
		return err
	})
	return behind, err
}

// readProjections reads what consumers have made of the events, and what their inbox has made dead
// letters of.
func (s *fixture) readProjections(ctx context.Context, e *evidence) error {
	e.summed = map[string]map[string]sums{}
	for _, broker := range scenario.Brokers() {
		e.summed[broker] = map[string]sums{}
		if s.options.Projectors > 0 {
			e.consumers = append(e.consumers, ConsumerVerdict{Broker: broker})
		}
	}
	return s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		var (
			consumer, account string
			is                sums
			deadLetters       int64
		)
		if err := each(ctx, db, "SELECT consumer, account, events, total FROM projections", []any{&consumer, &account, &is.events, &is.total}, func() error {
			e.summed[consumer][account] = is
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
