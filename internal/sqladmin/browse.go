package sqladmin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
		morePending, moreProcessing, moreFailed                          bool
		lastPublished                                                    moment
		lastError                                                        *string
	)
	err := scan(&pending, &morePending, &processing, &moreProcessing, &failed, &moreFailed, &published, &abandoned, &deferred, &age, &lastPublished, &lastError)
	return admin.BrokerOverview{
		Broker: name,
		Counts: map[outbox.Status]admin.Count{
			outbox.StatusPending:    counted(pending, limit, morePending),
			outbox.StatusProcessing: counted(processing, limit, moreProcessing),
			outbox.StatusFailed:     counted(failed, limit, moreFailed),
			outbox.StatusPublished:  counted(published, limit, false),
			outbox.StatusAbandoned:  counted(abandoned, limit, false),
		},
		Deferred: counted(deferred, limit, false), OldestPending: micros(age), LastPublished: lastPublished.Time, LastError: lastErrorOf(lastError),
	}, err
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

// A blocker is a row that blocks its key.
type blocker struct {
	admin.KeyBlock

	id    int64
	shard int64
}

// KeyBlocks implements admin.Administration. A key whose block is back in the way of claims is not
// blocked any more. Where very many keys are blocked, those whose blocks wake first and whose
// failed rows are the oldest are listed. Followers that are not deferred are counted at the heads
// of the shards.
func (a *Admin) KeyBlocks(ctx context.Context, broker string, limit, maxCount int) ([]admin.KeyBlock, error) {
	_, err := admin.Filter{Broker: broker}.For("blocked keys", limit)
	if broker == "" {
		err = errors.Join(err, errors.New("blocked keys: name the broker"))
	}
	if maxCount < 1 || max(limit, maxCount) > mostRows {
		err = errors.Join(err, fmt.Errorf("blocked keys: %d keys, counts up to %d: both must be at least 1 and at most %d", limit, maxCount, mostRows))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	var blockers []blocker
	err = a.read(ctx, Browse, func(ctx context.Context, conn Conn) error {
		blockers, err = a.blockers(ctx, conn, broker, limit)
		if err != nil || len(blockers) == 0 {
			return err
		}
		return a.followers(ctx, conn, broker, blockers, int64(maxCount))
	})
	if err != nil {
		return nil, a.failed(err, "list the blocked keys of broker %q in %s", broker, a.table)
	}
	keys := make([]admin.KeyBlock, len(blockers))
	for i := range blockers {
		keys[i] = blockers[i].KeyBlock
	}
	return keys, nil
}

// blockers are the blocks and the first failed rows of a broker's keys, one of each key and class:
// those that need an operator, then the oldest.
func (a *Admin) blockers(ctx context.Context, conn Conn, broker string, limit int) (blockers []blocker, err error) {
	type place struct {
		key   string
		shard int64
	}
	known := map[place]bool{}
	for _, statement := range []string{"key_blocks", "failed_keys"} {
		given := args{"broker": broker, "limit": int64(limit + len(blockers))} // some of the failed rows are those blocks
		err := a.query(ctx, conn, statement, given, func(scan scanner) error {
			b, err := a.scanBlocker(scan, broker)
			if at := (place{b.Key, b.shard}); !known[at] {
				known[at] = true
				blockers = append(blockers, b)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(blockers, func(a, b blocker) int {
		if forOperator := a.Until.IsZero(); forOperator != b.Until.IsZero() {
			if forOperator {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.id, b.id))
	})
	return blockers[:min(len(blockers), limit)], nil
}

func (a *Admin) scanBlocker(scan scanner, broker string) (blocker, error) {
	var (
		b            = blocker{KeyBlock: admin.KeyBlock{Broker: broker}}
		since, until moment
		failed       bool
		lastError    *string
	)
	err := scan(&b.Key, &b.id, &b.MessageID, &b.Status, &b.Reason, &since, &until, &failed, &lastError, &b.shard)
	b.Class = outbox.Class(int(b.shard) / (a.dialect.Shards / outbox.Classes))
	b.Since, b.Until, b.LastError = since.Time, until.Time, lastErrorOf(lastError)
	if failed && b.LastError != nil && b.LastError.At.After(b.Since) {
		b.Since = b.LastError.At.UTC() // a failed row that is not deferred waits since it failed
	}
	return b, err
}

// followers counts the rows that wait for each of the blockers.
func (a *Admin) followers(ctx context.Context, conn Conn, broker string, blockers []blocker, maxCount int64) error {
	if _, ok := a.statements["followers_of"]; ok { // a statement for each key
		return a.followersOf(ctx, conn, broker, blockers, maxCount)
	}
	keys, ids, shards := make([]string, len(blockers)), make([]int64, len(blockers)), make([]int64, len(blockers))
	for i := range blockers {
		keys[i], ids[i], shards[i] = blockers[i].Key, blockers[i].id, blockers[i].shard
	}
	given := args{"broker": broker, "keys": List{keys}, "ids": List{ids}, "shards": List{shards}, "max_count": maxCount}
	return a.query(ctx, conn, "followers", given, func(scan scanner) error {
		var (
			place int
			n     int64
			more  bool
		)
		if err := scan(&place, &n, &more); err != nil {
			return err
		}
		blockers[place].Followers = counted(n, maxCount, more)
		return nil
	})
}

func (a *Admin) followersOf(ctx context.Context, conn Conn, broker string, blockers []blocker, maxCount int64) error {
	for i := range blockers {
		b := &blockers[i]
		given := args{"broker": broker, "key": Text(b.Key), "id": b.id, "shard": b.shard, "max_count": maxCount}
		err := a.query(ctx, conn, "followers_of", given, func(scan scanner) error {
			var (
				n    int64
				more bool
			)
			err := scan(&n, &more)
			b.Followers = counted(n, maxCount, more)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// BlockedKeys implements admin.Administration.
func (a *Admin) BlockedKeys(ctx context.Context, broker string, limit int) (keys []admin.BlockedKey, err error) {
	if _, err := (admin.Filter{Broker: broker}).For("blocked keys", limit); err != nil {
		return nil, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	err = a.read(ctx, Plain, func(ctx context.Context, conn Conn) error {
		keys = nil
		return a.query(ctx, conn, "blocked_keys", args{"broker": broker, "limit": int64(min(limit, mostRows))}, func(scan scanner) error {
			var (
				k     admin.BlockedKey
				since moment
			)
			err := scan(&k.Broker, &k.Key, &k.MessageID, &since)
			k.Since = since.Time
			keys = append(keys, k)
			return err
		})
	})
	if err != nil {
		return nil, a.failed(err, "list blocked keys in %s", a.table)
	}
	return keys, nil
}
