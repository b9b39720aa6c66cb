package postgres

import (
	"context"
	"embed"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

//go:embed history/*.sql
var historyFiles embed.FS

// historyVersion is added to the versions of the history's steps: the outbox has its own.
const historyVersion = 1000

// historySteps make the history; those of the outbox come first.
func historySteps(table string) ([]driver.Migration, error) {
	return stepsIn(historyFiles, "history", table, historyVersion)
}

// missing is what there is not of the history beside its tables.
func (s *Store) missing(ctx context.Context, on querier) ([]string, error) {
	rows, err := on.Query(ctx, s.sql.historyMissing)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// history is what a store knows of the partitions to which it moves what was published.
type history struct {
	kept bool // there is one

	mu    sync.Mutex
	lasts time.Time // up to when days were made, by this process's clock
	asks  time.Time // when to make some again
}

const (
	// daysAhead is how long the days that were made have to last still, for rows to be moved: clocks
	// may differ.
	daysAhead = time.Hour
	daysEvery = time.Hour
	daysAgain = time.Minute // after a failure
)

// moves says whether a completion can move what was published to the history. Where there is no day
// to move it to, it is marked, as in an outbox without a history: delivery does not wait for DDL.
func (s *Store) moves(ctx context.Context, completion *driver.Completion) bool {
	if !s.moved(completion) {
		return false
	}
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	now := s.now().Round(0) // a monotonic clock stands still while a machine is suspended
	if !now.Before(s.history.asks) {
		s.history.asks = now.Add(daysAgain)
		var micros int64
		err := s.conn(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, s.sql.historyDays).Scan(&micros) })
		if err == nil { // else there may be days, and the purge reports why none can be made
			s.history.lasts = now.Add(time.Duration(micros) * time.Microsecond)
		}
		if err == nil && s.history.lasts.After(now.Add(daysAhead)) { // another process may be making them
			s.history.asks = now.Add(daysEvery)
		}
	}
	return s.history.lasts.After(now.Add(daysAhead))
}

// unmoved says whether a completion that was to move rows failed, and not in favour of others: the history has
// no partition for them, is gone or is not this role's to write to, or something of the owner's refuses the
// DELETE or the INSERT. They are to be marked, or they would be sent again and again. The days are looked for
// again in a moment.
func (s *Store) unmoved(completion *driver.Completion, err error) bool {
	var pgErr *pgconn.PgError
	if !s.moved(completion) || !errors.As(err, &pgErr) || pgErr.SeverityUnlocalized != "ERROR" || brokenOff(err) != contention.None {
		return false
	}
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	s.history.lasts, s.history.asks = time.Time{}, s.now().Round(0).Add(daysAgain)
	return true
}

// moved says whether a completion has rows that are moved where there are days.
func (s *Store) moved(completion *driver.Completion) bool {
	return s.history.kept && completion != nil && !completion.DeletePublished && len(completion.Published) > 0
}
