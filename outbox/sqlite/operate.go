package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Operator = (*Store)(nil)

// operateRows bounds the rows of one transaction: all other writers wait for as long as it runs.
const operateRows = 1000

// An action is what an operator does to rows.
type action struct {
	name     string
	statuses []outbox.Status // that it is for
	waiting  bool            // of the pending rows, only those that wait for a time
	refused  string          // error class of rows that are left out; empty = none
	change   func(ctx context.Context, conn *sql.Conn, p picked, now int64) error
}

// picked are rows that an action changes, and how many attempts were spent on each.
type picked struct {
	ids      []int64
	attempts []int
}

// Requeue implements outbox.Operator.
func (s *Store) Requeue(ctx context.Context, filter outbox.Filter, limit int, opts ...outbox.RequeueOption) (int, error) {
	requeuing, err := outbox.NewRequeuing(opts...)
	if err != nil {
		return 0, fmt.Errorf("sqlite: %w", err)
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
func (s *Store) requeue(ttl time.Duration) func(context.Context, *sql.Conn, picked, int64) error {
	return func(ctx context.Context, conn *sql.Conn, p picked, now int64) error {
		if err := s.onRows(ctx, conn, p.ids, s.sql.dropLoners, s.sql.turnBackBlocks); err != nil {
			return err
		}
		var expires any
		if ttl > 0 {
			expires = now + ttl.Microseconds()
		}
		_, err := conn.ExecContext(ctx, s.sql.requeue, sql.Named("ids", idList(p.ids)), sql.Named("now", now), sql.Named("expires", expires))
		return err
	}
}

// Abandon implements outbox.Operator.
func (s *Store) Abandon(ctx context.Context, filter outbox.Filter, reason string, limit int) (int, error) {
	abandon := func(ctx context.Context, conn *sql.Conn, p picked, now int64) error {
		type abandoned struct {
			ID    int64  `json:"id"`
			Error string `json:"error"`
		}
		rows := make([]abandoned, len(p.ids))
		for i, id := range p.ids {
			rows[i] = abandoned{ID: id, Error: outbox.OperatorError(reason, time.UnixMicro(now), p.attempts[i])}
		}
		list, err := json.Marshal(rows)
		if err != nil {
			return fmt.Errorf("encode the rows: %w", err)
		}
		if err := s.onRows(ctx, conn, p.ids, s.sql.dropLoners, s.sql.liftBlocks); err != nil {
			return err
		}
		_, err = conn.ExecContext(ctx, s.sql.abandon, sql.Named("rows", string(list)), sql.Named("now", now))
		return err
	}
	return s.operate(ctx, filter, limit, action{name: "abandon", statuses: outbox.AbandonStatuses(), change: abandon})
}

// onRows runs statements for the same rows.
func (s *Store) onRows(ctx context.Context, conn *sql.Conn, ids []int64, texts ...string) error {
	for _, text := range texts {
		if _, err := conn.ExecContext(ctx, text, sql.Named("ids", idList(ids))); err != nil {
			return err
		}
	}
	return nil
}

// Matches implements outbox.Operator. It takes no lock.
func (s *Store) Matches(ctx context.Context, filter outbox.Filter, limit int) (int, error) {
	a := action{name: "matches", statuses: outbox.Statuses()}
	filter, err := filter.For(a.name, limit, a.statuses...)
	if err != nil {
		return 0, fmt.Errorf("sqlite: %w", err)
	}
	ids, err := s.find(ctx, filter, limit, a, "")
	if err != nil {
		return 0, fmt.Errorf("sqlite: count rows in %s: %w", s.table, err)
	}
	return len(ids), nil
}

// operate looks for rows without a lock and then changes them, a bounded number in one transaction. What somebody else has
// changed in between does not count, and others are looked for in its place.
func (s *Store) operate(ctx context.Context, filter outbox.Filter, limit int, a action) (changed int, err error) {
	filter, err = filter.For(a.name, limit, a.statuses...)
	if err != nil {
		return 0, fmt.Errorf("sqlite: %w", err)
	}
	for changed < limit {
		want := min(limit-changed, operateRows)
		found, err := s.find(ctx, filter, want, a, " ORDER BY m.id")
		if err == nil && len(found) > 0 {
			var n int
			n, err = s.change(ctx, filter, found, a)
			changed += n
		}
		if err != nil {
			return changed, fmt.Errorf("sqlite: %s rows in %s: %w", a.name, s.table, err)
		}
		if len(found) < want {
			break
		}
	}
	return changed, nil
}

func (s *Store) find(ctx context.Context, f outbox.Filter, limit int, a action, order string) (ids []int64, err error) {
	exact, prefix := f.TypePattern()
	moment := func(at time.Time) any {
		if at.IsZero() {
			return nil
		}
		return at.UnixMicro()
	}
	args := []any{
		sql.Named("broker", f.Broker), sql.Named("statuses", textList(f.Statuses)), sql.Named("type", exact), sql.Named("prefix", prefix),
		sql.Named("key", f.Key), sql.Named("class", f.ErrorClass), sql.Named("since", moment(f.Since)), sql.Named("until", moment(f.Until)),
		sql.Named("waiting", a.waiting), sql.Named("now", s.micros()), sql.Named("limit", limit),
		sql.Named("refused", a.refused),
	}
	if len(f.MessageIDs) > 0 {
		args = append(args, sql.Named("messages", textList(f.MessageIDs)))
	} else {
		isOpen := slices.ContainsFunc(f.Statuses, func(status outbox.Status) bool { return !status.Terminal() })
		args = append(args, sql.Named("open", isOpen))
	}
	err = s.read(ctx, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, s.findSQL(f)+order+" LIMIT :limit", args...)
	return ids, err
}

// findSQL is find.sql for what a filter names. SQLite makes one plan for all arguments, so what is not asked for is not in it.
func (s *Store) findSQL(f outbox.Filter) string {
	rows, broker := s.sql.findRows, ""
	if f.Broker != "" {
		broker = "target_broker = :broker AND"
	}
	if len(f.MessageIDs) > 0 {
		rows = s.sql.findIDs
	}
	return strings.ReplaceAll(s.sql.find, "{{rows}}", strings.ReplaceAll(rows, "{{broker}}", broker))
}

func (s *Store) change(ctx context.Context, filter outbox.Filter, found []int64, a action) (int, error) {
	var p picked
	err := s.write(ctx, func(conn *sql.Conn) error {
		now := s.micros()
		rows, err := conn.QueryContext(ctx, s.sql.pick, sql.Named("ids", idList(found)), sql.Named("statuses", textList(filter.Statuses)),
			sql.Named("waiting", a.waiting), sql.Named("now", now))
		if err != nil {
			return err
		}
		if err := each(rows, func(rows *sql.Rows) error {
			var (
				id       int64
				attempts int
			)
			err := rows.Scan(&id, &attempts)
			p.ids, p.attempts = append(p.ids, id), append(p.attempts, attempts)
			return err
		}); err != nil || len(p.ids) == 0 {
			return err
		}
		return a.change(ctx, conn, p, now)
	})
	if err != nil {
		return 0, err
	}
	return len(p.ids), nil
}

// UnblockKey implements outbox.Operator.
func (s *Store) UnblockKey(ctx context.Context, broker, key string) (bool, error) {
	if broker == "" || key == "" {
		return false, errors.New("sqlite: release a key: name the broker and the ordering key")
	}
	var released int64
	err := s.write(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, s.sql.unblockKey, sql.Named("broker", broker), sql.Named("key", key))
		if err != nil {
			return err
		}
		released, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return false, fmt.Errorf("sqlite: release key %q of broker %q in %s: %w", key, broker, s.table, err)
	}
	return released > 0, nil
}

// textList is how texts travel into a statement.
func textList[T ~string](texts []T) string {
	list, err := json.Marshal(append([]T{}, texts...)) // none is an empty list, not null
	if err != nil {
		panic(fmt.Sprintf("texts always encode: %v", err))
	}
	return string(list)
}
