package monitor

import (
	"cmp"
	"context"
	"slices"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	// DefaultBlocked is how many blocked keys [Console.Blocked] lists where nothing else is asked for.
	DefaultBlocked = 200
	// MaxBlocked is the most.
	MaxBlocked = 10_000
	// maxFollowers is where counting the followers of a key ends.
	maxFollowers = 1000
)

// Blocked lists the ordering keys that wait, of all brokers where broker is empty: those that wait for
// an operator first, then those with the most followers. limit is how many, at most [MaxBlocked]; 0
// means [DefaultBlocked]. The totals are those of all keys. Followers are counted up to 1,000 of a key.
func (c *Console) Blocked(ctx context.Context, database, broker string, limit int) (list admin.KeyBlocks, err error) {
	if err := checkText("broker", broker); err != nil {
		return list, err
	}
	if limit = cmp.Or(limit, DefaultBlocked); limit < 1 || limit > MaxBlocked {
		return list, refusef("blocked keys: the limit is %d: use 1 to %d", limit, MaxBlocked)
	}
	brokers, err := c.brokersOf(ctx, database, broker)
	if err != nil {
		return list, err
	}
	for _, name := range brokers {
		keys, err := ask(ctx, c, database, func(ctx context.Context, store admin.Administration) (admin.KeyBlocks, error) {
			return store.KeyBlocks(ctx, name, limit, maxFollowers)
		})
		if err != nil {
			return admin.KeyBlocks{}, err
		}
		list.Keys = append(list.Keys, keys.Keys...)
		list.Waiting, list.Blocked = sumKeys(list.Waiting, keys.Waiting), sumKeys(list.Blocked, keys.Blocked)
	}
	slices.SortStableFunc(list.Keys, func(a, b admin.KeyBlock) int {
		if operator := a.Until.IsZero(); operator != b.Until.IsZero() {
			if operator {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Followers.N, a.Followers.N), a.Since.Compare(b.Since))
	})
	list.Keys = list.Keys[:min(len(list.Keys), limit)]
	return list, nil
}

func sumKeys(a, b admin.KeyCount) admin.KeyCount {
	return admin.KeyCount{Keys: sum(a.Keys, b.Keys), Rows: sum(a.Rows, b.Rows)}
}
