package sqladmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// OperateRows bounds the rows of one transaction: claims of their brokers stand still for as long
// as it runs.
const OperateRows = 1000

// An action is what an operator does to rows.
type action struct {
	name      string
	statuses  []outbox.Status // that it is for
	waiting   bool            // of the pending rows, only those that wait for a time
	refused   string          // error class of rows that are left out; empty = none
	prepare   []string        // statements about the blocks of the rows' keys, before they change
	statement string          // that changes the rows, or the whole batch where the database has no pick.sql
	given     args            // of its own
}

// Requeue implements admin.Administration.
func (a *Admin) Requeue(ctx context.Context, filter admin.Filter, limit int, opts ...admin.RequeueOption) (int, error) {
	requeuing, err := admin.NewRequeuing(opts...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	requeue := requeueing("requeue", admin.RequeueStatuses(), requeuing.TTL)
	requeue.waiting, requeue.refused = true, requeuing.Refused(&filter)
	return a.operate(ctx, filter, limit, requeue)
}

// Replay implements admin.Administration.
func (a *Admin) Replay(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	return a.operate(ctx, filter, limit, requeueing("replay", admin.ReplayStatuses(), 0))
}

// requeueing makes rows pending again, with a new time to live unless it is 0.
func requeueing(name string, statuses []outbox.Status, ttl time.Duration) action {
	return action{
		name: name, statuses: statuses, prepare: []string{"undefer_alone", "wake_elsewhere", "move_blocks"}, statement: "requeue", given: args{"ttl": ttl},
	}
}

// Abandon implements admin.Administration.
func (a *Admin) Abandon(ctx context.Context, filter admin.Filter, reason string, limit int) (int, error) {
	text, ok := strings.CutSuffix(admin.OperatorError(reason, time.Time{}, 0), `"0001-01-01T00:00:00Z","attempt":0}`) // these the database fills in
	if !ok {
		return 0, fmt.Errorf("%s: abandon: the error %q does not end with the time and the number of attempts", a.dialect.Name, text)
	}
	return a.operate(ctx, filter, limit, action{
		name: "abandon", statuses: admin.AbandonStatuses(), prepare: []string{"undefer_alone", "lift_blocks"}, statement: "abandon", given: args{"error": Text(text)},
	})
}

// Matches implements admin.Administration. It takes no lock.
func (a *Admin) Matches(ctx context.Context, filter admin.Filter, limit int) (int, error) {
	matches := action{name: "matches", statuses: outbox.Statuses()}
	filter, err := filter.For(matches.name, limit, matches.statuses...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	var n int64
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

// rows are told by their ids; each database takes those of its primary key.
type rows struct {
	ids      []int64
	messages []string
	brokers  []string
}

func (r *rows) scan(scan scanner) error {
	var (
		id              int64
		message, broker string
	)
	err := scan(&id, &message, &broker)
	r.ids, r.messages, r.brokers = append(r.ids, id), append(r.messages, message), append(r.brokers, broker)
	return err
}

// sort brings them into the order of their ids, in which all sessions of ours lock rows.
func (r *rows) sort() {
	places := make([]int, len(r.ids))
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(r.ids[a], r.ids[b]) })
	unsorted := *r
	*r = rows{}
	for _, i := range places {
		r.ids, r.messages, r.brokers = append(r.ids, unsorted.ids[i]), append(r.messages, unsorted.messages[i]), append(r.brokers, unsorted.brokers[i])
	}
}

func (r *rows) args() args {
	return args{"ids": List{r.ids}, "message_ids": List{r.messages}, "brokers": List{r.brokers}}
}

// operate looks for rows without a lock and then changes them, a bounded number in one transaction.
// What another transaction has changed in between does not count, and others are looked for in its
// place.
func (a *Admin) operate(ctx context.Context, filter admin.Filter, limit int, do action) (changed int, err error) {
	filter, err = filter.For(do.name, limit, do.statuses...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	var brokers []string
	defer func() { a.db.Changed(ctx, brokers...) }()
	for changed < limit {
		want := min(limit-changed, OperateRows)
		found, err := a.find(ctx, &filter, want, &do)
		if err == nil && len(found.ids) > 0 {
			var n int
			if n, err = a.act(ctx, &filter, found, &do); n > 0 {
				brokers = append(brokers, found.brokers...)
			}
			changed += n
		}
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
	found.sort()
	return found, err
}

// search is the statement for a filter, where the database has one of its own for what the filter
// names: one plan cannot do for all. A statement for all brokers may ask for their names.
func (a *Admin) search(ctx context.Context, conn Conn, statement string, filter *admin.Filter, given args) (string, args, error) {
	special := ""
	switch {
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
	exact, prefix := f.TypePattern()
	return args{
		"broker": Text(f.Broker), "statuses": List{words(f.Statuses)}, "type": Text(exact), "type_prefix": Text(prefix), "key": Text(f.Key),
		"message_ids": List{f.MessageIDs}, "class": Text(f.ErrorClass), "since": f.Since, "until": f.Until,
		"waiting": do.waiting, "refused": Text(do.refused), "limit": int64(min(limit, mostRows)),
	}
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

// act takes the locks of all shards that the rows can be in, and then those of the rows that still
// are what was looked for.
func (a *Admin) act(ctx context.Context, filter *admin.Filter, found rows, do *action) (changed int, err error) {
	given := args{"locks": a.db.ShardLocks(found.brokers), "lock_brokers": List{distinct(found.brokers)}, "statuses": List{words(filter.Statuses)}, "waiting": do.waiting}
	maps.Copy(given, do.given)
	err = a.write(ctx, Operate, func(ctx context.Context, conn Conn) error {
		maps.Copy(given, found.args())
		if _, ok := a.statements["pick"]; !ok { // the statement is a batch that does it all
			n, err := a.exec(ctx, conn, do.statement, given)
			changed = int(n)
			return err
		}
		if err := a.lock(ctx, conn, given); err != nil {
			return err
		}
		var picked rows
		err := a.query(ctx, conn, "pick", given, picked.scan)
		if changed = len(picked.ids); err != nil || changed == 0 {
			return err
		}
		maps.Copy(given, picked.args())
		for _, statement := range append(slices.Clip(do.prepare), do.statement) {
			if _, err := a.exec(ctx, conn, statement, given); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// lock takes locks of shards, where the transaction is not the lock of them all.
func (a *Admin) lock(ctx context.Context, conn Conn, given args) error {
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

// UnblockKey implements admin.Administration.
func (a *Admin) UnblockKey(ctx context.Context, broker, key string) (bool, error) {
	if broker == "" || key == "" {
		return false, fmt.Errorf("%s: %w", a.dialect.Name, errNoKey)
	}
	var unblocked int64
	err := a.write(ctx, Operate, func(ctx context.Context, conn Conn) (err error) {
		given := args{"locks": a.db.ShardLocks([]string{broker}), "lock_brokers": List{[]string{broker}}, "broker": broker, "key": Text(key)}
		if err := a.lock(ctx, conn, given); err != nil {
			return err
		}
		unblocked, err = a.exec(ctx, conn, "unblock_key", given)
		return err
	})
	if err != nil {
		return false, a.failed(err, "unblock key %q of broker %q in %s", key, broker, a.table)
	}
	if unblocked > 0 {
		a.db.Changed(ctx, broker)
	}
	return unblocked > 0, nil
}

var errNoKey = errors.New("unblock a key: name the broker and the ordering key")
