//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"gorm.io/driver/postgres"
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
	db, err := gorm.Open(postgres.Open(s.servers.postgresURL), &gorm.Config{Logger: logger.Discard})
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
	err = s.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT EXISTS (
			SELECT FROM unnest($1::text[]) AS c (consumer)
			 WHERE coalesce((SELECT sum(p.events) FROM projections AS p WHERE p.consumer = c.consumer), 0)
			     < (SELECT count(*) FROM facts AS f WHERE f.published OR c.consumer = $2))`, scenario.Brokers(), scenario.Internal).Scan(&behind)
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
	return s.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var (
			consumer, account string
			is                sums
			deadLetters       int64
		)
		rows, err := conn.Query(ctx, "SELECT consumer, account, events, total FROM projections")
		if err != nil {
			return err
		}
		if _, err := pgx.ForEachRow(rows, []any{&consumer, &account, &is.events, &is.total}, func() error {
			e.summed[consumer][account] = is
			return nil
		}); err != nil {
			return fmt.Errorf("chaos: read the projections: %w", err)
		}
		for i := range e.consumers {
			row := conn.QueryRow(ctx, "SELECT count(*) FROM inbox_messages WHERE consumer = $1 AND status = 'dead_letter'", e.consumers[i].Broker)
			if err := row.Scan(&deadLetters); err != nil {
				return fmt.Errorf("chaos: read the inbox: %w", err)
			}
			e.consumers[i].DeadLetters = deadLetters
		}
		return nil
	})
}
