package sqladmin

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Counts implements admin.Administration. It reads every open row; of finished ones the index
// alone, where the database can.
func (a *Admin) Counts(ctx context.Context) ([]admin.BrokerCounts, error) {
	var tally admin.Tally
	err := a.read(ctx, Count, func(ctx context.Context, conn Conn) error {
		tally = admin.Tally{}
		if err := a.query(ctx, conn, "counts", nil, func(scan scanner) error {
			var (
				broker string
				status outbox.Status
				n, age int64
			)
			err := scan(&broker, &status, &n, &age)
			tally.Add(broker, status, n, micros(age))
			return err
		}); err != nil {
			return err
		}
		return a.query(ctx, conn, "last_errors", nil, func(scan scanner) error {
			var broker, lastError string
			err := scan(&broker, &lastError)
			tally.SetLastError(broker, lastError)
			return err
		})
	})
	if err != nil {
		return nil, a.failed(err, "count rows in %s", a.table)
	}
	return a.summed(tally.Brokers()), nil
}

// summed keeps the brokers that are distinguished, and makes one of all others.
func (a *Admin) summed(brokers []admin.BrokerCounts) []admin.BrokerCounts {
	all := slices.Clone(brokers)
	kept := few(brokers, func(b admin.BrokerCounts) bool { return a.other(b.Broker) })
	kept = slices.DeleteFunc(kept, func(b admin.BrokerCounts) bool { return b.Broker == admin.OtherBrokers }) // a row may have that name
	others := admin.Tally{}
	for i := range all {
		b := &all[i]
		if slices.ContainsFunc(kept, func(k admin.BrokerCounts) bool { return k.Broker == b.Broker }) {
			continue
		}
		for status, n := range b.Counts {
			others.Add(admin.OtherBrokers, status, n, b.OldestPending)
		}
	}
	return append(kept, others.Brokers()...)
}

// micros is a duration in microseconds, not below 0.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }

// Backlog implements admin.Administration.
func (a *Admin) Backlog(ctx context.Context) (backlog []admin.Backlog, err error) {
	err = a.read(ctx, Count, func(ctx context.Context, conn Conn) error {
		backlog, err = a.backlog(ctx, conn)
		return err
	})
	if err != nil {
		return nil, a.failed(err, "read the backlog in %s", a.table)
	}
	return backlog, nil
}

func (a *Admin) backlog(ctx context.Context, conn Conn) (backlog []admin.Backlog, err error) {
	if _, ok := a.statements["backlog_of"]; ok { // a statement for each broker
		names, err := a.names(ctx, conn, "open_brokers")
		for _, name := range names {
			lag, lagErr := a.lag(ctx, conn, name)
			if lagErr != nil {
				return nil, lagErr
			}
			backlog = append(backlog, admin.Backlog{Broker: name, Lag: lag, Unknown: a.stranger(name)})
		}
		return backlog, err
	}
	given := args{"brokers": List{a.configured()}, "most": a.mostNames()}
	maps.Copy(given, a.db.Marks(a.configured()...))
	for _, given["look"] = range looks {
		backlog = nil
		crowded := false
		err = a.query(ctx, conn, "backlog", given, func(scan scanner) error {
			var (
				broker string
				lag    int64
				more   bool
			)
			err := scan(&broker, &lag, &more)
			backlog, crowded = append(backlog, admin.Backlog{Broker: broker, Lag: micros(lag), Unknown: a.stranger(broker)}), crowded || more
			return err
		})
		if err != nil || !crowded {
			break
		}
	}
	return few(backlog, func(b admin.Backlog) bool { return a.other(b.Broker) }), err
}

// looks are how many open rows of a shard are looked at for one that is due: more where the first ones are
// those of a key that is being sent.
var looks = []int64{1000, 20_000} //nolint:gochecknoglobals // a constant

// lag is how far one broker is behind: by its marks, and without them where they do not hold.
func (a *Admin) lag(ctx context.Context, conn Conn, broker string) (time.Duration, error) {
	for _, marks := range []map[string]any{a.db.Marks(broker), a.db.Marks()} {
		given := args{"broker": broker}
		maps.Copy(given, marks)
		var (
			lag           int64
			crowded, hold bool
			err           error
		)
		for _, given["look"] = range looks {
			err = a.query(ctx, conn, "backlog_of", given, func(scan scanner) error { return scan(&lag, &crowded, &hold) })
			if err != nil || !hold || !crowded {
				break
			}
		}
		if err != nil || hold {
			return micros(lag), err
		}
	}
	return 0, ErrIncomplete
}

// mostBeside is how many open rows are looked at for one of a stream.
const mostBeside = 10_000

// Alone implements driver.Delivery.
func (a *Admin) Alone(ctx context.Context, broker, stream string, id int64) (alone bool, err error) {
	given := args{"broker": broker, "stream": stream, "id": id, "limit": int64(mostBeside)}
	if stream == "" {
		given["limit"] = int64(2) // of two, one is another
	}
	err = a.read(ctx, Browse, func(ctx context.Context, conn Conn) error {
		beside, err := a.number(ctx, conn, "beside", given)
		alone = beside == 0
		return err
	})
	if err != nil {
		return false, a.failed(err, "look for open rows of broker %q beside row %d in %s", broker, id, a.table)
	}
	return alone, nil
}

// FinishedBrokers implements admin.Administration.
func (a *Admin) FinishedBrokers(ctx context.Context) (names []string, err error) {
	err = a.read(ctx, Plain, func(ctx context.Context, conn Conn) error {
		// All of them: what is not listed is not purged.
		names, err = a.listed(ctx, conn, "finished_brokers", math.MaxInt32)
		names = distinct(append(names, a.configured()...))
		return err
	})
	if err != nil {
		return nil, a.failed(err, "list brokers in %s", a.table)
	}
	return names, nil
}

// Know implements admin.Administration.
func (a *Admin) Know(brokers ...string) {
	known := distinct(brokers)
	a.known.Store(&known)
}

// configured are the brokers of the configuration; none where they are not known.
func (a *Admin) configured() []string {
	if known := a.known.Load(); known != nil {
		return *known
	}
	return []string{}
}

// stranger reports whether the configuration is known, and does not have a broker.
func (a *Admin) stranger(broker string) bool {
	known := a.configured()
	_, is := slices.BinarySearch(known, broker)
	return len(known) > 0 && !is
}

// other reports whether a broker is one of those of which no more than MaxStrangers are
// distinguished.
func (a *Admin) other(broker string) bool { return len(a.configured()) == 0 || a.stranger(broker) }

// mostNames is how many names are read from an index: those of the configuration may be among them.
func (a *Admin) mostNames() int64 { return int64(admin.MaxStrangers + len(a.configured())) }

// few keeps the first MaxStrangers of those that are strangers, and all others.
func few[T any](list []T, stranger func(T) bool) []T {
	strangers := 0
	return slices.DeleteFunc(list, func(one T) bool {
		if stranger(one) {
			strangers++
		}
		return stranger(one) && strangers > admin.MaxStrangers
	})
}

// names are the brokers of which a statement tells, and those of the configuration; sorted.
func (a *Admin) names(ctx context.Context, conn Conn, statement string) ([]string, error) {
	names, err := a.listed(ctx, conn, statement, a.mostNames())
	return few(distinct(append(names, a.configured()...)), a.other), err
}

// listed are the names of which a statement tells, so many at most: all of them at once, or, where the
// database needs constants for a probe of its index, from one to the next that is not of the configuration.
func (a *Admin) listed(ctx context.Context, conn Conn, statement string, most int64) (names []string, err error) {
	add := func(scan scanner) error {
		var name string
		err := scan(&name)
		names = append(names, name)
		return err
	}
	const hop = "brokers"
	if !slices.Contains(a.statements[hop].parameters, "after") {
		err = a.query(ctx, conn, statement, args{"most": most}, add)
		return names, err
	}
	// Past those of the configuration, of which published rows leave entries in the index. Whether there is one
	// at all is asked from behind, where there are no such entries.
	after := "\x00" // which sorts before the empty text, too
	for _, known := range append(slices.Clone(a.configured()), "\U0010FFFF") {
		last, found, err := a.hop(ctx, conn, hop, after, known)
		for ; found && err == nil && most > 0; most-- {
			if after, found, err = a.hop(ctx, conn, "next_broker", after, known); !found || err != nil {
				break
			}
			if statement == hop {
				names = append(names, after)
			} else {
				err = a.query(ctx, conn, statement, args{"broker": after}, add)
			}
			found = after < last
		}
		if err != nil {
			return names, err
		}
		after = known
	}
	return names, nil
}

// hop is the first or the last name between two others of which there are rows.
func (a *Admin) hop(ctx context.Context, conn Conn, statement, after, before string) (name string, found bool, err error) {
	err = a.query(ctx, conn, statement, args{"after": after, "before": before}, func(scan scanner) error {
		found = true
		return scan(&name)
	})
	return name, found, err
}

// Purge implements admin.Administration.
func (a *Admin) Purge(ctx context.Context, request admin.PurgeRequest) (int, error) {
	if !request.Status.Terminal() {
		return 0, fmt.Errorf("%s: purge rows in status %q: only published and abandoned rows can be purged", a.dialect.Name, request.Status)
	}
	var removed int64
	err := a.write(ctx, Purge, func(ctx context.Context, conn Conn) (err error) {
		given := args{"broker": request.Broker, "retention": request.Retention, "limit": int64(request.Limit)}
		statement := "purge_" + string(request.Status)
		if _, ok := a.statements[statement]; !ok { // rows are locked first, and then removed
			statement = "purge"
			var ids []int64
			err := a.query(ctx, conn, "expired_"+string(request.Status), given, func(scan scanner) error {
				var id int64
				err := scan(&id)
				ids = append(ids, id)
				return err
			})
			if err != nil || len(ids) == 0 {
				return err
			}
			given["ids"] = List{ids}
		}
		removed, err = a.exec(ctx, conn, statement, given)
		return err
	})
	if err != nil {
		return 0, a.failed(err, "purge %s rows of broker %q in %s", request.Status, request.Broker, a.table)
	}
	return int(removed), nil
}
