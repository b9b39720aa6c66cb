package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

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
	text     string
	args     []any // beside those of pick.sql
}

// operateTexts are the batches of actions, by the name of their file; lockedHere stands where they take locks.
func operateTexts(s *statements, table string) {
	lock, pick := embedded("lock_shards"), embedded("pick")
	for name, text := range map[string]*string{"requeue": &s.requeue, "abandon": &s.abandon} {
		*text = strings.ReplaceAll(batchText(table, name), lockedHere, outbox.RenderSQL(lock+pick, table))
	}
	s.unblockKey = strings.ReplaceAll(batchText(table, "unblock_key"), lockedHere, outbox.RenderSQL(lock, table))
	s.find, s.matches = batchText(table, "find", "found"), batchText(table, "find", "matches")
}

const lockedHere = "{{locked}}\n"

// Requeue implements outbox.Operator.
func (s *Store) Requeue(ctx context.Context, filter outbox.Filter, limit int, opts ...outbox.RequeueOption) (int, error) {
	requeuing, err := outbox.NewRequeuing(opts...)
	if err != nil {
		return 0, fmt.Errorf("sqlserver: %w", err)
	}
	return s.operate(ctx, filter, limit, action{
		name: "requeue", statuses: outbox.RequeueStatuses(), waiting: true, refused: requeuing.Refused(&filter),
		text: s.sql.requeue, args: durationArgs("ttl", requeuing.TTL),
	})
}

// Replay implements outbox.Operator.
func (s *Store) Replay(ctx context.Context, filter outbox.Filter, limit int) (int, error) {
	return s.operate(ctx, filter, limit, action{name: "replay", statuses: outbox.ReplayStatuses(), text: s.sql.requeue, args: durationArgs("ttl", 0)})
}

// Abandon implements outbox.Operator.
func (s *Store) Abandon(ctx context.Context, filter outbox.Filter, reason string, limit int) (int, error) {
	text, ok := strings.CutSuffix(outbox.OperatorError(reason, time.Time{}, 0), `"0001-01-01T00:00:00Z","attempt":0}`) // these the server fills in
	if !ok {
		return 0, fmt.Errorf("sqlserver: abandon: the error %q does not end with the time and the number of attempts", text)
	}
	return s.operate(ctx, filter, limit, action{
		name: "abandon", statuses: outbox.AbandonStatuses(), text: s.sql.abandon, args: []any{sql.Named("error", mssql.NVarCharMax(text))},
	})
}

// Matches implements outbox.Operator. It passes over rows that somebody is writing, and waits for nobody.
func (s *Store) Matches(ctx context.Context, filter outbox.Filter, limit int) (int, error) {
	a := action{name: "matches", statuses: outbox.Statuses()}
	filter, err := filter.For(a.name, limit, a.statuses...)
	if err != nil {
		return 0, fmt.Errorf("sqlserver: %w", err)
	}
	args, err := findArgs(filter, limit, a)
	if err != nil {
		return 0, err
	}
	n, err := s.number(ctx, s.sql.matches, args, "fanout_matches")
	if err != nil {
		return 0, fmt.Errorf("sqlserver: count rows in %s: %w", s.table, err)
	}
	return n, nil
}

// number runs a batch that answers with one number, and repeats it when the server breaks it off.
func (s *Store) number(ctx context.Context, text string, args []any, set string) (int, error) {
	n := -1
	err := retry(func() error {
		return s.query(ctx, text, args, resultSets{set: func(rows *sql.Rows) error { return rows.Scan(&n) }})
	})
	if err == nil && n < 0 {
		err = errIncomplete
	}
	if err != nil {
		return 0, explain(err)
	}
	return n, nil
}

// operate looks for rows without locks and then changes them, a bounded number in one transaction. What somebody else has
// changed in between does not count, and others are looked for in its place.
func (s *Store) operate(ctx context.Context, filter outbox.Filter, limit int, a action) (changed int, err error) {
	filter, err = filter.For(a.name, limit, a.statuses...)
	if err != nil {
		return 0, fmt.Errorf("sqlserver: %w", err)
	}
	for changed < limit {
		want := min(limit-changed, operateRows)
		found, err := s.find(ctx, filter, want, a)
		if err == nil && len(found.ids) > 0 {
			var n int
			n, err = s.change(ctx, filter, found, a)
			changed += n
		}
		if err != nil {
			return changed, fmt.Errorf("sqlserver: %s rows in %s: %w", a.name, s.table, err)
		}
		if len(found.ids) < want {
			break
		}
	}
	return changed, nil
}

// found are rows that an action may change.
type found struct {
	ids     []int64
	brokers []string
}

func (s *Store) find(ctx context.Context, filter outbox.Filter, limit int, a action) (f found, err error) {
	args, err := findArgs(filter, limit, a)
	if err != nil {
		return f, err
	}
	err = retry(func() error {
		f = found{}
		return s.query(ctx, s.sql.find, args, resultSets{"fanout_found": func(rows *sql.Rows) error {
			var (
				id     int64
				broker string
			)
			err := rows.Scan(&id, &broker)
			f.ids, f.brokers = append(f.ids, id), append(f.brokers, broker)
			return err
		}})
	})
	return f, explain(err)
}

func findArgs(f outbox.Filter, limit int, a action) ([]any, error) {
	statuses, err := jsonList(f.Statuses)
	if err != nil {
		return nil, err
	}
	var ids mssql.NVarCharMax
	if len(f.MessageIDs) > 0 {
		if ids, err = jsonList(f.MessageIDs); err != nil {
			return nil, err
		}
	}
	exact, prefix := f.TypePattern()
	text := func(name, value string) any { return sql.Named(name, mssql.NVarCharMax(value)) }
	return []any{
		sql.Named("limit", int64(limit)), text("broker", f.Broker), sql.Named("statuses", statuses), text("type", exact),
		text("type_prefix", prefix), text("key", f.Key), sql.Named("message_ids", ids), text("error_class", f.ErrorClass),
		text("since", moment(f.Since)), text("until", moment(f.Until)), sql.Named("waiting", a.waiting),
		text("refused", a.refused),
	}, nil
}

// moment is a point in time as find.sql reads it.
func moment(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000000")
}

// change takes the locks of all shards that the rows can be in, and then the rows.
func (s *Store) change(ctx context.Context, filter outbox.Filter, f found, a action) (int, error) {
	locks, err := jsonList(s.shardLocks(f.brokers))
	if err != nil {
		return 0, err
	}
	ids, err := jsonList(f.ids)
	if err != nil {
		return 0, err
	}
	statuses, err := jsonList(filter.Statuses)
	if err != nil {
		return 0, err
	}
	args := append([]any{
		sql.Named("locks", locks), sql.Named("ids", ids), sql.Named("statuses", statuses), sql.Named("waiting", a.waiting),
	}, a.args...)
	return s.number(ctx, a.text, args, "fanout_operated")
}

// shardLocks names the locks of all shards of brokers; those of other classes share them.
func (s *Store) shardLocks(brokers []string) (locks []string) {
	for _, broker := range slices.Compact(slices.Sorted(slices.Values(brokers))) {
		for shard := range outbox.Shards {
			locks = append(locks, s.shardLock(broker, shard))
		}
	}
	return locks
}

// UnblockKey implements outbox.Operator.
func (s *Store) UnblockKey(ctx context.Context, broker, key string) (bool, error) {
	if broker == "" || key == "" {
		return false, errors.New("sqlserver: release a key: name the broker and the ordering key")
	}
	locks, err := jsonList(s.shardLocks([]string{broker}))
	if err != nil {
		return false, err
	}
	n, err := s.number(ctx, s.sql.unblockKey, []any{
		sql.Named("locks", locks), sql.Named("broker", broker), sql.Named("key", mssql.NVarCharMax(key)),
	}, "fanout_released")
	if err != nil {
		return false, fmt.Errorf("sqlserver: release key %q of broker %q in %s: %w", key, broker, s.table, err)
	}
	return n > 0, nil
}
