//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// watchSessions samples the database's sessions and the memory of the processes once a second. The
// function that it returns stops the sampling and returns the peaks.
func (s *fixture) watchSessions(ctx context.Context) (stop func() map[string]int) {
	ctx, cancel := context.WithCancel(ctx)
	peaks, done := map[string]int{}, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.countSessions(ctx, peaks)
			for _, p := range s.processes {
				p.weigh()
			}
			pauseFor(ctx, time.Second)
		}
	}()
	return func() map[string]int {
		cancel()
		<-done
		return peaks
	}
}

// countSessions updates the peaks by process. It does nothing while the database is down.
func (s *fixture) countSessions(ctx context.Context, peaks map[string]int) {
	_ = s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		var (
			name string
			n    int
		)
		return each(ctx, db, s.database.peaks, []any{&name, &n}, func() error {
			peaks[name] = max(peaks[name], n)
			return nil
		})
	})
}

// openRows counts the rows that are not final.
func (s *fixture) openRows(ctx context.Context) (n int64, err error) {
	err = s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL").Scan(&n)
	})
	return n, err
}

// sessionsLeft waits for a while until no client is connected to the database, and returns how many
// still are.
func (s *fixture) sessionsLeft(ctx context.Context) (n int, err error) {
	bound, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err = s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, s.database.left).Scan(&n)
		})
		if err == nil && n == 0 || bound.Err() != nil {
			return n, err
		}
		pauseFor(bound, 100*time.Millisecond)
	}
}

// behind is how many messages consumers have left to see, or to handle: how many events that were
// committed for their broker observers have not seen, and projections not counted.
func (s *fixture) behind(ctx context.Context) (left int64, err error) {
	var (
		events, published, handled int64
		consumer                   string
		done                       = map[string]int64{}
	)
	if err := s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		err := db.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(CASE WHEN published <> '0' THEN 1 ELSE 0 END), 0) FROM facts").Scan(&events, &published)
		if err != nil {
			return err
		}
		return each(ctx, db, "SELECT consumer, sum(events) FROM projections GROUP BY consumer", []any{&consumer, &handled}, func() error {
			done[consumer] = handled
			return nil
		})
	}); err != nil {
		return 0, err
	}
	seen := map[string]map[string]struct{}{}
	for _, observer := range s.cluster.observers {
		if err := scenario.ReadLedger(s.processes[observer].path("ledger"), func(line scenario.Line) { noteSeen(seen, line) }); err != nil {
			return 0, err
		}
	}
	for _, b := range s.brokers {
		want := published
		if b.internal() {
			want = events
		}
		left += max(0, want-int64(len(seen[b.name])))
		if s.options.Projectors > 0 {
			left += max(0, want-done[b.name])
		}
	}
	return left, nil
}

// noteSeen adds a line of an observer to what was seen, by broker.
func noteSeen(seen map[string]map[string]struct{}, line scenario.Line) {
	if line.Message == "" {
		return
	}
	if seen[line.Broker] == nil {
		seen[line.Broker] = map[string]struct{}{}
	}
	seen[line.Broker][line.Message] = struct{}{}
}
