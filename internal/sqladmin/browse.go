package sqladmin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Overview implements admin.Administration. Of each kind of rows no more are read than the limit
// and some: where there are more, the counts say so, and the oldest row is the oldest of those.
func (a *Admin) Overview(ctx context.Context, limit int) (brokers []admin.BrokerOverview, err error) {
	if limit < 1 || limit > mostRows {
		return nil, fmt.Errorf("%s: overview: the limit is %d: it must be at least 1 and at most %d", a.dialect.Name, limit, mostRows)
	}
	err = a.read(ctx, Browse, func(ctx context.Context, conn Conn) error {
		brokers = nil
		names, err := a.names(ctx, conn, "brokers")
		if err != nil {
			return err
		}
		for _, name := range names {
			err := a.query(ctx, conn, "overview", args{"broker": name, "limit": int64(limit)}, func(scan scanner) error {
				broker, err := scanOverview(scan, name, int64(limit))
				brokers = append(brokers, broker)
				return err
			})
			if err == nil && len(brokers) > 0 {
				err = a.standing(ctx, conn, &brokers[len(brokers)-1], int64(limit))
			}
			if err != nil {
				return err
			}
		}
		backlog, err := a.backlog(ctx, conn)
		for _, behind := range backlog {
			if i := slices.IndexFunc(brokers, func(b admin.BrokerOverview) bool { return b.Broker == behind.Broker }); i >= 0 {
				brokers[i].Lag = behind.Lag
			}
		}
		return err
	})
	if err != nil {
		return nil, a.failed(err, "read the overview of %s", a.table)
	}
	return brokers, nil
}

func scanOverview(scan scanner, name string, limit int64) (admin.BrokerOverview, error) {
	var (
		pending, processing, failed, published, abandoned, deferred, age int64
		scheduled, unacknowledged                                        int64
		morePending, moreProcessing, moreFailed                          bool
		lastPublished                                                    moment
		lastError                                                        *string
	)
	err := scan(&pending, &morePending, &processing, &moreProcessing, &failed, &moreFailed, &published, &abandoned, &deferred, &age, &lastPublished, &lastError,
		&scheduled, &unacknowledged)
	return admin.BrokerOverview{
		Broker: name,
		Counts: map[outbox.Status]admin.Count{
			outbox.StatusPending:    counted(pending, limit, morePending),
			outbox.StatusProcessing: counted(processing, limit, moreProcessing),
			outbox.StatusFailed:     counted(failed, limit, moreFailed),
			outbox.StatusPublished:  counted(published, limit, false),
			outbox.StatusAbandoned:  counted(abandoned, limit, false),
		},
		Scheduled: counted(scheduled, limit, false), Unacknowledged: counted(unacknowledged, limit, false),
		Deferred: counted(deferred, limit, false), OldestPending: micros(age), LastPublished: lastPublished.Time, LastError: lastErrorOf(lastError),
	}, err
}

// standing adds the keys of a broker that wait for an operator, up to the limit, and the rows behind the
// first 10,000 of them.
func (a *Admin) standing(ctx context.Context, conn Conn, broker *admin.BrokerOverview, limit int64) error {
	most := limit + 1
	var blocked []blocker
	err := a.query(ctx, conn, "entries", args{"broker": broker.Broker, "limit": most}, func(scan scanner) error {
		var b blocker
		err := scan(&b.shard, &b.Key, &b.id)
		blocked = append(blocked, b)
		return err
	})
	if err != nil {
		return err
	}
	broker.BlockedKeys = counted(int64(len(blocked)), limit, false)
	looked := blocked[:min(len(blocked), maxBlockers)] // one by one
	broker.Held, err = a.behind(ctx, conn, broker.Broker, looked, limit)
	broker.Held.More = broker.Held.More || len(blocked) > len(looked)
	return err
}

// behind sums up the rows behind blockers.
func (a *Admin) behind(ctx context.Context, conn Conn, broker string, blockers []blocker, limit int64) (sum admin.Count, err error) {
	if len(blockers) == 0 {
		return sum, nil
	}
	err = a.compare(ctx, conn, broker, blockers, limit)
	more := false
	for i := range blockers {
		sum.N += blockers[i].Followers.N
		more = more || blockers[i].Followers.More
	}
	return counted(sum.N, limit, more), err
}

// counted is a count that found n rows; more is true when not all rows were read.
func counted(n, limit int64, more bool) admin.Count {
	return admin.Count{N: min(n, limit), More: more || n > limit}
}

// lastErrorOf decodes last_error; nil where there is none, or one that is no JSON object.
func lastErrorOf(text *string) *outbox.LastError {
	var last *outbox.LastError
	if text == nil || json.Unmarshal([]byte(*text), &last) != nil {
		return nil
	}
	return last
}
