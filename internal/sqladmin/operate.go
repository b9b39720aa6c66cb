package sqladmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// OperateRows bounds the rows of one transaction: claims of their brokers stand still for as long
// as it runs.
const OperateRows = 1000

// An action is what an operator does to rows.
type action struct {
	name     string
	act      core.Act
	statuses []outbox.Status // that it is for
	waiting  bool            // of the pending rows, only those that wait for a time
	refused  string          // error class of rows that are left out; empty = none
	given    args            // of its statement, which changes the rows
}

// statement changes the rows; empty where only blocks are changed.
func (do *action) statement() string {
	switch do.act {
	case core.Abandon:
		return "abandon"
	case core.Acknowledge:
		return "acknowledge"
	case core.Discard:
		return "discard"
	case core.UnblockRows:
		return ""
	default:
		return "requeue"
	}
}

// Requeue implements admin.Administration.
func (a *Admin) Requeue(ctx context.Context, filter admin.Filter, limit int, opts ...admin.RequeueOption) (int, error) {
	requeuing, err := admin.NewRequeuing(opts...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	return a.operate(ctx, filter, limit, action{
		name: "requeue", act: core.Requeue, statuses: admin.RequeueStatuses(), waiting: true, refused: requeuing.Refused(&filter), given: args{"ttl": requeuing.TTL},
	})
}

// Replay implements admin.Administration.
func (a *Admin) Replay(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return a.operate(ctx, filter, limit, action{name: "replay", act: core.Replay, statuses: admin.ReplayStatuses(), given: args{"ttl": time.Duration(0)}})
}

// Abandon implements admin.Administration.
func (a *Admin) Abandon(ctx context.Context, filter admin.Filter, reason string, limit int) (int, error) {
	text, ok := strings.CutSuffix(admin.OperatorError(reason, time.Time{}, 0), `"0001-01-01T00:00:00Z","attempt":0}`) // these the database fills in
	if !ok {
		return 0, fmt.Errorf("%s: abandon: the error %q does not end with the time and the number of attempts", a.dialect.Name, text)
	}
	return a.operate(ctx, filter, limit, action{
		name: "abandon", act: core.Abandon, statuses: admin.AbandonStatuses(), given: args{"error": Text(text)},
	})
}

// Acknowledge implements admin.Administration.
func (a *Admin) Acknowledge(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	filter.Unacknowledged = true
	return a.operate(ctx, filter, limit, action{name: "acknowledge", act: core.Acknowledge, statuses: admin.AbandonedStatuses()})
}

// Discard implements admin.Administration.
func (a *Admin) Discard(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return a.operate(ctx, filter, limit, action{name: "discard", act: core.Discard, statuses: admin.AbandonedStatuses()})
}

// Unblock implements admin.Administration.
func (a *Admin) Unblock(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	filter.Blocking = true
	return a.operate(ctx, filter, limit, action{name: "unblock", act: core.UnblockRows, statuses: admin.AbandonedStatuses()})
}

// Matches implements admin.Administration. It takes no lock.
func (a *Admin) Matches(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	matches := action{name: "matches", statuses: outbox.Statuses()}
	filter, err := filter.For(matches.name, limit, matches.statuses...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	var n int64
	if filter.Blocking { // which are few, and found by another statement
		found, err := a.find(ctx, &filter, limit, &matches)
		if err != nil {
			return 0, a.failed(err, "count rows in %s", a.table)
		}
		return len(found.ids), nil
	}
	err = a.read(ctx, Find, func(ctx context.Context, conn Conn) (err error) {
		statement, given, err := a.search(ctx, conn, "matches", &filter, findArgs(&filter, limit, &matches))
		if err == nil {
			n, err = a.number(ctx, conn, statement, given)
		}
		return err
	})
	if err != nil {
		return 0, a.failed(err, "count rows in %s", a.table)
	}
	return int(n), nil
}

// rows that were found. Each database takes the ids of its primary key.
type rows struct {
	ids      []int64
	messages []string
	brokers  []string
}

func (r *rows) add(id int64, message, broker string) {
	r.ids, r.messages, r.brokers = append(r.ids, id), append(r.messages, message), append(r.brokers, broker)
}

func (r *rows) scan(scan scanner) error {
	var (
		id              int64
		message, broker string
	)
	err := scan(&id, &message, &broker)
	r.add(id, message, broker)
	return err
}

func (r *rows) args() args {
	return args{"ids": List{r.ids}, "message_ids": List{r.messages}, "brokers": List{r.brokers}}
}

// operate finds rows without a lock and then changes them, a bounded number in each transaction. It
// skips rows that another transaction has changed in between, and looks for others.
func (a *Admin) operate(ctx context.Context, filter admin.Filter, limit int, do action) (changed int, err error) {
	filter, err = filter.For(do.name, limit, do.statuses...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	var brokers []string
	defer func() { a.db.Changed(ctx, brokers...) }()
	for piece := OperateRows; changed < limit; {
		want := min(limit-changed, piece)
		found, err := a.find(ctx, &filter, want, &do)
		if err == nil && len(found.ids) > 0 {
			var n int
			if n, err = a.act(ctx, &filter, &found, &do); n > 0 {
				brokers = append(brokers, found.brokers...)
			}
			changed += n
		}
		if errors.Is(err, ErrChanged) && want > 1 { // fewer rows change more rarely while they are looked at
			piece = max(want/8, 1)
			continue
		}
		piece = min(2*piece, OperateRows)
		if err != nil {
			return changed, a.failed(err, "%s rows in %s", do.name, a.table)
		}
		if len(found.ids) < want {
			break
		}
	}
	return changed, nil
}

// find browses for the rows that an action is to change.
func (a *Admin) find(ctx context.Context, filter *admin.Filter, limit int, do *action) (found rows, err error) {
	err = a.read(ctx, Find, func(ctx context.Context, conn Conn) error {
		found = rows{}
		statement, given, err := a.search(ctx, conn, "find", filter, findArgs(filter, limit, do))
		if err != nil {
			return err
		}
		return a.query(ctx, conn, statement, given, found.scan)
	})
	return found, err
}

// search is the statement for a filter, where the database has one of its own for what the filter
// names: one plan cannot do for all. A statement for all brokers may ask for their names.
func (a *Admin) search(ctx context.Context, conn Conn, statement string, filter *admin.Filter, given args) (string, args, error) {
	special := ""
	switch {
	case filter.Blocking:
		special = "blocking"
	case len(filter.MessageIDs) > 0:
		special = statement + "_by_message"
	case filter.Broker == "":
		special = statement + "_everywhere"
	}
	s, ok := a.statements[special]
	if !ok {
		return statement, given, nil
	}
	if slices.Contains(s.parameters, "brokers") {
		names, err := a.names(ctx, conn, "brokers")
		if err != nil {
			return "", nil, err
		}
		given["brokers"] = List{names}
	}
	return special, given, nil
}

func findArgs(f *admin.Filter, limit int, do *action) args {
	given := args{
		"broker": Text(f.Broker), "statuses": List{words(f.Statuses)}, "key_prefix": Text(f.KeyPrefix), "unacknowledged": f.Unacknowledged,
		"message_ids": List{f.MessageIDs}, "waiting": do.waiting, "refused": Text(do.refused), "limit": int64(min(limit, mostRows)),
	}
	maps.Copy(given, matchArgs(f))
	return given
}

func words(statuses []outbox.Status) []string {
	names := make([]string, len(statuses))
	for i, status := range statuses {
		names[i] = string(status)
	}
	return names
}

// distinct is a list in ascending order without doubles.
func distinct(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// act takes the locks of all shards that the rows can be in, reads the rows that still are what was
// looked for, and the blocks of their keys, and writes what is decided about them. Where the database
// would hold locks for a client that is stopped, it takes none until all is decided, and then compares
// what was read; see part_verify.sql.
func (a *Admin) act(ctx context.Context, filter *admin.Filter, found *rows, do *action) (changed int, err error) {
	err = a.write(ctx, Operate, func(ctx context.Context, conn Conn) error {
		if err := a.lock(ctx, conn, found.brokers); err != nil {
			return err
		}
		picked, err := a.pick(ctx, conn, found)
		picked = slices.DeleteFunc(picked, func(row core.Operand) bool { return !slices.Contains(filter.Statuses, row.Status) || !do.act.For(&row) })
		if changed = 0; err != nil || len(picked) == 0 {
			return err
		}
		blocks, err := a.entries(ctx, conn, "blocks_of", operandArgs(picked))
		if err != nil {
			return err
		}
		repair := core.Operate(do.act, picked, blocks)
		if changed = len(repair.Rows); do.act == core.UnblockRows {
			changed = len(repair.Moves)
		}
		return a.repair(ctx, conn, do, &repair, blocks, found.brokers)
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// lock takes locks of shards, where the transaction is not the lock of them all, nor one statement is
// the transaction.
func (a *Admin) lock(ctx context.Context, conn Conn, brokers []string) error {
	given := a.locks(brokers)
	for _, statement := range []string{"lock_shards", "lock_turn"} {
		if _, ok := a.statements[statement]; !ok {
			return nil
		}
		if _, err := a.exec(ctx, conn, statement, given); err != nil {
			return err
		}
	}
	return nil
}

func (a *Admin) locks(brokers []string) args {
	return args{"locks": a.db.ShardLocks(brokers), "lock_brokers": List{distinct(brokers)}}
}

// UnblockKey implements admin.Administration.
func (a *Admin) UnblockKey(ctx context.Context, broker, key string) (bool, error) {
	if broker == "" || key == "" {
		return false, fmt.Errorf("%s: %w", a.dialect.Name, errNoKey)
	}
	unblocked := false
	err := a.write(ctx, Operate, func(ctx context.Context, conn Conn) error {
		if err := a.lock(ctx, conn, []string{broker}); err != nil {
			return err
		}
		blocks, err := a.entries(ctx, conn, "blocks_of_key", args{"broker": broker, "key": Text(key)})
		moves := core.Unblock(blocks)
		if unblocked = len(moves) > 0; err != nil || !unblocked {
			return err
		}
		given := moveArgs(moves)
		maps.Copy(given, a.locks([]string{broker}))
		return a.changes(ctx, conn, "move_blocks", given, len(moves))
	})
	if err != nil {
		return false, a.failed(err, "unblock key %q of broker %q in %s", key, broker, a.table)
	}
	if unblocked {
		a.db.Changed(ctx, broker)
	}
	return unblocked, nil
}

var errNoKey = errors.New("unblock a key: name the broker and the ordering key")
