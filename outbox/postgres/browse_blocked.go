package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/outbox"
)

const (
	// keyBlocks of each shard, and blockedRows that have failed, are looked at for the keys that they hold back.
	keyBlocks   = 2000
	blockedRows = 2000
	// followerRows are counted for all keys together.
	followerRows = 50_000
)

// A blocker is a row that holds back its key.
type blocker struct {
	outbox.KeyBlock

	id       int64
	operator bool // must act
}

// Blocked implements outbox.Browser. A key whose block is back in the way of claims is not blocked any more. Where there are very many
// keys, those that are looked at are those whose blocks wake first and whose failed rows are the oldest. Followers that are not deferred are
// counted at the heads of the shards.
func (s *Store) Blocked(ctx context.Context, broker string, limit, maxCount int) ([]outbox.KeyBlock, error) {
	_, err := outbox.Filter{Broker: broker}.For("blocked", limit)
	if broker == "" {
		err = errors.Join(err, errors.New("blocked: name the broker"))
	}
	if maxCount < 1 || max(limit, maxCount) > mostRows {
		err = errors.Join(err, fmt.Errorf("blocked: %d keys, counts up to %d: both must be at least 1 and at most %d", limit, maxCount, mostRows))
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	var blockers []blocker
	err = s.look(ctx, func(tx pgx.Tx) error {
		blockers, err = s.blockers(ctx, tx, broker, limit)
		if err != nil || len(blockers) == 0 {
			return err
		}
		return s.followers(ctx, tx, broker, blockers, maxCount)
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: list the blocked keys of broker %q in %s: %w", broker, s.table, err)
	}
	keys := make([]outbox.KeyBlock, len(blockers))
	for i := range blockers {
		keys[i] = blockers[i].KeyBlock
	}
	return keys, nil
}

// blockers are the blocks and the failed rows of a broker, one of each key: those that need an operator, then the oldest.
func (s *Store) blockers(ctx context.Context, tx pgx.Tx, broker string, limit int) ([]blocker, error) {
	rows, err := tx.Query(ctx, s.sql.keyBlocks, broker, limit, keyBlocks)
	if err != nil {
		return nil, err
	}
	blockers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (blocker, error) {
		var (
			h         = blocker{KeyBlock: outbox.KeyBlock{Broker: broker}}
			until     pgtype.Timestamptz
			lastError string
		)
		err := row.Scan(&h.Key, &h.id, &h.MessageID, &h.operator, &h.Reason, &h.Since, &until, &h.Status, &lastError)
		h.Since, h.Until, h.LastError = h.Since.UTC(), finite(until), readError(&lastError)
		return h, err
	})
	if err != nil {
		return nil, err
	}
	blocked := map[string]bool{}
	for i := range blockers {
		blocked[blockers[i].Key] = true
	}
	rows, err = tx.Query(ctx, s.sql.blockedFailed, broker, limit+len(blockers), blockedRows) // some of which are those blocks
	if err != nil {
		return nil, err
	}
	failed, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (blocker, error) { return readFailed(row, broker) })
	if err != nil {
		return nil, err
	}
	for i := range failed {
		if !blocked[failed[i].Key] {
			blockers = append(blockers, failed[i])
		}
	}
	slices.SortStableFunc(blockers, func(a, b blocker) int {
		if a.operator != b.operator {
			return cmp.Compare(b2i(b.operator), b2i(a.operator))
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.id, b.id))
	})
	return blockers[:min(len(blockers), limit)], nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// readFailed reads a failed row that is not deferred. It waits since it failed, which its error tells.
func readFailed(row pgx.CollectableRow, broker string) (blocker, error) {
	var (
		h              = blocker{KeyBlock: outbox.KeyBlock{Broker: broker, Reason: "backoff"}}
		created, until pgtype.Timestamptz
		lastError      string
	)
	err := row.Scan(&h.Key, &h.id, &h.MessageID, &created, &until, &h.Status, &lastError)
	h.Since, h.Until, h.LastError = finite(created), finite(until), readError(&lastError)
	if h.LastError != nil && h.LastError.At.After(h.Since) {
		h.Since = h.LastError.At.UTC()
	}
	return h, err
}

// followers counts the rows that wait for each of the blockers.
func (s *Store) followers(ctx context.Context, tx pgx.Tx, broker string, blockers []blocker, maxCount int) error {
	keys, ids := make([]string, len(blockers)), make([]int64, len(blockers))
	for i := range blockers {
		keys[i], ids[i] = blockers[i].Key, blockers[i].id
	}
	rows, err := tx.Query(ctx, s.sql.followers, broker, keys, ids, maxCount, firstRows, followerRows)
	if err != nil {
		return err
	}
	var (
		place int
		n     int64
		more  bool
	)
	_, err = pgx.ForEachRow(rows, []any{&place, &n, &more}, func() error {
		blockers[place-1].Followers = counted(n, maxCount, more)
		return nil
	})
	return err
}
