package sqladmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// maxBlockers is how many keys of one broker are looked at.
	maxBlockers = 10_000
	// followersBudget is how many deferred followers are counted to compare keys.
	followersBudget = 50_000
)

// A blocker is a row that blocks its key.
type blocker struct {
	admin.KeyBlock

	id    int64
	shard int64
}

// operator reports whether the key waits for an operator.
func (b *blocker) operator() bool { return b.Reason == reasonOperator && b.Until.IsZero() }

// KeyBlocks implements admin.Administration. A key whose block is back in the way of claims is not
// blocked any more. Where more keys wait than are looked at, those whose blocks wake first and whose
// failed rows are the oldest are. Followers that are not deferred are counted at the heads of the
// shards.
func (a *Admin) KeyBlocks(ctx context.Context, broker string, limit, maxCount int) (admin.KeyBlocks, error) {
	_, err := admin.Filter{Broker: broker}.For("blocked keys", limit)
	if maxCount < 1 || max(limit, maxCount) > mostRows {
		err = errors.Join(err, fmt.Errorf("blocked keys: %d keys, counts up to %d: both must be at least 1 and at most %d", limit, maxCount, mostRows))
	}
	if err != nil {
		return admin.KeyBlocks{}, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	var list admin.KeyBlocks
	err = a.read(ctx, Browse, func(ctx context.Context, conn Conn) error {
		list, err = a.keyBlocks(ctx, conn, broker, limit, int64(maxCount))
		return err
	})
	if err != nil {
		return admin.KeyBlocks{}, a.failed(err, "list the blocked keys of broker %q in %s", broker, a.table)
	}
	return list, nil
}

func (a *Admin) keyBlocks(ctx context.Context, conn Conn, broker string, limit int, maxCount int64) (list admin.KeyBlocks, err error) {
	blockers, more, err := a.blockers(ctx, conn, broker)
	if err != nil || len(blockers) == 0 {
		return list, err
	}
	if err := a.compare(ctx, conn, broker, blockers, maxCount); err != nil {
		return list, err
	}
	shown := blockers[:min(len(blockers), limit)]
	if err := a.followers(ctx, conn, broker, shown, maxCount); err != nil {
		return list, err
	}
	sortBlockers(shown) // counts may have grown
	if err := a.lastErrors(ctx, conn, broker, shown); err != nil {
		return list, err
	}
	list.Waiting.Keys.More, list.Blocked.Keys.More = more, more
	for i := range blockers {
		addKey(&list.Waiting, blockers[i].Followers)
		if blockers[i].operator() {
			addKey(&list.Blocked, blockers[i].Followers)
		}
	}
	list.Keys = make([]admin.KeyBlock, len(shown))
	for i := range shown {
		list.Keys[i] = shown[i].KeyBlock
	}
	return list, nil
}

// addKey counts one more key with its followers.
func addKey(to *admin.KeyCount, followers admin.Count) {
	to.Keys.N++
	to.Rows = admin.Count{N: to.Rows.N + followers.N, More: to.Rows.More || followers.More || to.Keys.More}
}

// blockers are the blocks and the first failed rows of a broker's keys, one of each key and class.
// more is true where there may be others.
func (a *Admin) blockers(ctx context.Context, conn Conn, broker string) (blockers []blocker, more bool, err error) {
	type place struct {
		key   string
		shard int64
	}
	known := map[place]bool{}
	for _, statement := range []string{"key_blocks", "failed_keys"} {
		n := 0
		err := a.query(ctx, conn, statement, args{"broker": broker, "limit": int64(maxBlockers)}, func(scan scanner) error {
			b, err := a.scanBlocker(scan, broker)
			n++
			if at := (place{b.Key, b.shard}); !known[at] {
				known[at] = true
				blockers = append(blockers, b)
			}
			return err
		})
		if err != nil {
			return nil, false, err
		}
		more = more || n >= maxBlockers
	}
	sortBlockers(blockers)
	return blockers[:min(len(blockers), maxBlockers)], more || len(blockers) > maxBlockers, nil
}

// sortBlockers sorts by what an operator should look at first.
func sortBlockers(blockers []blocker) {
	slices.SortFunc(blockers, func(a, b blocker) int {
		if a.operator() != b.operator() {
			if a.operator() {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Followers.N, a.Followers.N), a.Since.Compare(b.Since), cmp.Compare(a.id, b.id))
	})
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

// compare counts the followers of many keys, so far as it takes to tell which have the most: of each
// key as many as its part of the budget, and of those with more up to most, while the budget lasts.
func (a *Admin) compare(ctx context.Context, conn Conn, broker string, blockers []blocker, most int64) error {
	if err := a.compareDeferred(ctx, conn, broker, blockers, most); err != nil {
		return err
	}
	if err := a.undeferredOf(ctx, conn, broker, blockers, most); err != nil {
		return err
	}
	sortBlockers(blockers)
	return nil
}

// compareDeferred counts deferred followers only.
func (a *Admin) compareDeferred(ctx context.Context, conn Conn, broker string, blockers []blocker, most int64) error {
	few := min(max(followersBudget/int64(len(blockers)), 1), most)
	if err := a.deferredOf(ctx, conn, broker, blockers, few); err != nil {
		return err
	}
	if few < most {
		var (
			long   []blocker
			places []int
		)
		for i := range blockers {
			if blockers[i].Followers.More && int64(len(long)) < max(followersBudget/most, 1) {
				long, places = append(long, blockers[i]), append(places, i)
			}
		}
		if err := a.deferredOf(ctx, conn, broker, long, most); err != nil {
			return err
		}
		for i, place := range places {
			blockers[place].Followers = long[i].Followers
		}
	}
	return nil
}

// deferredOf counts the deferred rows behind blockers, up to most of each.
func (a *Admin) deferredOf(ctx context.Context, conn Conn, broker string, blockers []blocker, most int64) error {
	if len(blockers) == 0 {
		return nil
	}
	given := followersArgs(broker, blockers, most)
	return a.query(ctx, conn, "deferred_followers", given, func(scan scanner) error {
		var (
			place int
			n     int64
		)
		err := scan(&place, &n)
		if err == nil {
			blockers[place].Followers = counted(n, most, false)
		}
		return err
	})
}

// undeferredOf adds the rows behind blockers that are not deferred, among the first of their shards.
func (a *Admin) undeferredOf(ctx context.Context, conn Conn, broker string, blockers []blocker, most int64) error {
	shards := map[int64]map[string]*blocker{}
	for i := range blockers {
		b := &blockers[i]
		if shards[b.shard] == nil {
			shards[b.shard] = map[string]*blocker{}
		}
		shards[b.shard][b.Key] = b
	}
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		keys := shards[shard]
		given := args{"broker": broker, "shard": shard, "keys": List{slices.Sorted(maps.Keys(keys))}}
		err := a.query(ctx, conn, "key_heads", given, func(scan scanner) error {
			var (
				key     string
				id      int64
				claimed bool
			)
			err := scan(&key, &id, &claimed)
			if b := keys[key]; err == nil && b != nil && id > b.id {
				b.Followers = counted(b.Followers.N+1, most, b.Followers.More)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// followersArgs are the blockers as lists side by side, and as one list.
func followersArgs(broker string, blockers []blocker, most int64) args {
	type one struct {
		ID    int64  `json:"id"`
		Key   string `json:"key"`
		Shard int64  `json:"shard"`
	}
	keys, ids, shards, list := make([]string, len(blockers)), make([]int64, len(blockers)), make([]int64, len(blockers)), make([]one, len(blockers))
	for i := range blockers {
		keys[i], ids[i], shards[i] = blockers[i].Key, blockers[i].id, blockers[i].shard
		list[i] = one{ids[i], keys[i], shards[i]}
	}
	return args{"broker": broker, "keys": List{keys}, "ids": List{ids}, "shards": List{shards}, "blockers": List{list}, "max_count": most}
}

// lastErrors reads the last errors of rows that block their keys.
func (a *Admin) lastErrors(ctx context.Context, conn Conn, broker string, blockers []blocker) error {
	found, place := rows{}, map[int64]int{}
	for i := range blockers {
		found.add(blockers[i].id, blockers[i].MessageID, broker)
		place[blockers[i].id] = i
	}
	given := found.args()
	given["broker"] = broker
	return a.query(ctx, conn, "errors_of", given, func(scan scanner) error {
		var (
			id        int64
			lastError *string
		)
		err := scan(&id, &lastError)
		if i, ok := place[id]; ok {
			blockers[i].LastError = lastErrorOf(lastError)
		}
		return err
	})
}

// followers counts the rows that wait for each of the blockers.
func (a *Admin) followers(ctx context.Context, conn Conn, broker string, blockers []blocker, maxCount int64) error {
	if _, ok := a.statements["followers_of"]; ok { // a statement for each key
		return a.followersOf(ctx, conn, broker, blockers, maxCount)
	}
	given := followersArgs(broker, blockers, maxCount)
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
