package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Operator = (*Store)(nil)

// operateRows bounds the rows of one transaction: claims of the broker stand still for as long as it runs.
const operateRows = 1000

// An action is what an operator does to rows.
type action struct {
	name     string
	statuses []outbox.Status // that it is for
	waiting  bool            // of the pending rows, only those that wait for a time
	refused  string          // error class of rows that are left out; empty = none
	change   func(batch *pgx.Batch, p picked)
}

// picked are rows that are locked for an action: their keys, and the statuses that they have been checked for.
type picked struct {
	ids, brokers, statuses []string
	attempts               []int
	now                    time.Time // by the database's clock
}

// Requeue implements outbox.Operator.
func (s *Store) Requeue(ctx context.Context, filter outbox.Filter, limit int, opts ...outbox.RequeueOption) (int, error) {
	requeuing, err := outbox.NewRequeuing(opts...)
	if err != nil {
		return 0, fmt.Errorf("postgres: %w", err)
	}
	return s.operate(ctx, filter, limit, action{
		name: "requeue", statuses: outbox.RequeueStatuses(), waiting: true, refused: requeuing.Refused(&filter), change: s.requeue(requeuing.TTL),
	})
}

// Replay implements outbox.Operator.
func (s *Store) Replay(ctx context.Context, filter outbox.Filter, limit int) (int, error) {
	return s.operate(ctx, filter, limit, action{name: "replay", statuses: outbox.ReplayStatuses(), change: s.requeue(0)})
}

// requeue makes rows pending again, with a new time to live unless it is 0.
func (s *Store) requeue(ttl time.Duration) func(*pgx.Batch, picked) {
	return func(batch *pgx.Batch, p picked) {
		batch.Queue(s.sql.undeferAlone, p.ids, p.brokers)
		batch.Queue(s.sql.moveBlocks, p.ids, p.brokers)
		batch.Queue(s.sql.requeue, p.ids, p.brokers, p.statuses, ttl.Microseconds())
	}
}

// Abandon implements outbox.Operator.
func (s *Store) Abandon(ctx context.Context, filter outbox.Filter, reason string, limit int) (int, error) {
	abandon := func(batch *pgx.Batch, p picked) {
		texts := make([]string, len(p.ids))
		for i, attempts := range p.attempts {
			texts[i] = outbox.OperatorError(reason, p.now, attempts)
		}
		batch.Queue(s.sql.undeferAlone, p.ids, p.brokers)
		batch.Queue(s.sql.liftBlocks, p.ids, p.brokers)
		batch.Queue(s.sql.abandon, p.ids, p.brokers, p.statuses, texts)
	}
	return s.operate(ctx, filter, limit, action{name: "abandon", statuses: outbox.AbandonStatuses(), change: abandon})
}

// Matches implements outbox.Operator. It takes no lock.
func (s *Store) Matches(ctx context.Context, filter outbox.Filter, limit int) (int, error) {
	a := action{name: "matches", statuses: outbox.Statuses()}
	filter, err := filter.For(a.name, limit, a.statuses...)
	if err != nil {
		return 0, fmt.Errorf("postgres: %w", err)
	}
	var n int
	err = s.planned(ctx, s.sql.matches, arguments(filter, limit, a), func(rows pgx.Rows) (err error) {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: count rows in %s: %w", s.table, err)
	}
	return n, nil
}

// operate looks for rows without a lock and then changes them, a bounded number in one transaction. What somebody else has
// changed in between does not count, and others are looked for in its place.
func (s *Store) operate(ctx context.Context, filter outbox.Filter, limit int, a action) (changed int, err error) {
	filter, err = filter.For(a.name, limit, a.statuses...)
	if err != nil {
		return 0, fmt.Errorf("postgres: %w", err)
	}
	var brokers []string
	defer func() { s.announceChange(ctx, brokers...) }()
	for changed < limit {
		want := min(limit-changed, operateRows)
		found, err := s.find(ctx, filter, want, a)
		if err == nil && len(found.ids) > 0 {
			var n int
			if n, err = s.change(ctx, found, a); n > 0 {
				brokers = append(brokers, found.brokers...)
			}
			changed += n
		}
		if err != nil {
			return changed, fmt.Errorf("postgres: %s rows in %s: %w", a.name, s.table, err)
		}
		if len(found.ids) < want {
			break
		}
	}
	return changed, nil
}

func (s *Store) find(ctx context.Context, filter outbox.Filter, limit int, a action) (picked, error) {
	found := picked{}
	for _, status := range filter.Statuses {
		found.statuses = append(found.statuses, string(status))
	}
	err := s.planned(ctx, s.sql.find, arguments(filter, limit, a), func(rows pgx.Rows) error {
		var id, broker string
		_, err := pgx.ForEachRow(rows, []any{&id, &broker}, func() error {
			found.ids, found.brokers = append(found.ids, id), append(found.brokers, broker)
			return nil
		})
		return err
	})
	return found, err
}

// arguments are those of find.sql, and the limit.
func arguments(f outbox.Filter, limit int, a action) []any {
	exact, prefix := f.TypePattern()
	statuses := make([]string, len(f.Statuses))
	for i, status := range f.Statuses {
		statuses[i] = string(status)
	}
	return []any{f.Broker, statuses, exact, prefix, f.Key, f.MessageIDs, f.ErrorClass, moment(f.Since), moment(f.Until), a.waiting, limit, a.refused}
}

// planned runs a query with a plan that is made for its arguments: one that fits all of them would read the whole table.
func (s *Store) planned(ctx context.Context, text string, args []any, read func(pgx.Rows) error) error {
	return s.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL plan_cache_mode = force_custom_plan"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		return read(rows)
	})
}

// change takes the locks of all shards that the rows can be in, and then the rows. It repeats what the server has broken off.
func (s *Store) change(ctx context.Context, found picked, a action) (changed int, err error) {
	for try := 1; ; try++ {
		err = s.locked(ctx, found.brokers, func(tx pgx.Tx) error {
			p, err := s.pick(ctx, tx, found, a)
			changed = len(p.ids)
			if err != nil || changed == 0 {
				return err
			}
			var batch pgx.Batch
			a.change(&batch, p)
			return tx.SendBatch(ctx, &batch).Close()
		})
		if err == nil {
			return changed, nil
		}
		if !transient(err) || try == maxTries {
			return 0, err
		}
	}
}

func (s *Store) pick(ctx context.Context, tx pgx.Tx, found picked, a action) (picked, error) {
	p := picked{statuses: found.statuses}
	rows, err := tx.Query(ctx, s.sql.pick, found.ids, found.brokers, found.statuses, a.waiting)
	if err != nil {
		return p, err
	}
	var (
		id, broker string
		attempts   int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &broker, &attempts, &p.now}, func() error {
		p.ids, p.brokers, p.attempts = append(p.ids, id), append(p.brokers, broker), append(p.attempts, attempts)
		return nil
	})
	return p, err
}

// locked runs f in a transaction that holds the locks of all shards of the brokers. They are taken in the order of their
// numbers, so that operators never wait for each other in a circle; a claim holds one of them at a time.
func (s *Store) locked(ctx context.Context, brokers []string, f func(pgx.Tx) error) error {
	var locks []int32
	for _, broker := range slices.Compact(slices.Sorted(slices.Values(brokers))) {
		for shard := range outbox.Shards { // those of other classes share them
			locks = append(locks, shardLock(broker, shard))
		}
	}
	slices.Sort(locks)
	return s.transaction(ctx, func(tx pgx.Tx) error {
		var batch pgx.Batch
		batch.Queue(s.sql.operateSettings)
		for _, lock := range slices.Compact(locks) {
			batch.Queue(s.sql.lock, lock)
		}
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		return f(tx)
	})
}

// transaction runs f in a transaction in which each statement sees what was committed before it, whatever the server's default.
func (s *Store) transaction(ctx context.Context, f func(pgx.Tx) error) error {
	return s.conn(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, f)
	})
}

// UnblockKey implements outbox.Operator.
func (s *Store) UnblockKey(ctx context.Context, broker, key string) (bool, error) {
	if broker == "" || key == "" {
		return false, errors.New("postgres: release a key: name the broker and the ordering key")
	}
	released := false
	err := s.locked(ctx, []string{broker}, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.sql.unblockKey, broker, key)
		released = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postgres: release key %q of broker %q in %s: %w", key, broker, s.table, err)
	}
	if released {
		s.announceChange(ctx, broker)
	}
	return released, nil
}

// moment is NULL for the zero time.
func moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}
