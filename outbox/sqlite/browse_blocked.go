package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// blockedRows bounds how many blocks of each shard, how many failing rows, and how many rows at the head of each shard are looked at.
const blockedRows = 10_000

// A holder is a row that holds back the others of its key.
type holder struct {
	outbox.KeyBlock

	id       int64
	operator bool // must act
}

// Blocked implements outbox.Browser. A key whose block is back in the way of claims is not blocked any more. Where very many keys wait,
// those whose blocks wake first and whose failed rows are the oldest are looked at. Followers that are not deferred are counted at the heads
// of the shards.
func (s *Store) Blocked(ctx context.Context, broker string, limit, maxCount int) ([]outbox.KeyBlock, error) {
	_, err := outbox.Filter{Broker: broker}.For("blocked", limit)
	if broker == "" {
		err = errors.Join(err, errors.New("blocked: name the broker"))
	}
	if maxCount < 1 || max(limit, maxCount) > mostRows {
		err = errors.Join(err, fmt.Errorf("blocked: %d keys, with counts up to %d: both must be from 1 to %d", limit, maxCount, mostRows))
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	keys, err := s.blocked(ctx, broker, limit, maxCount)
	if err != nil {
		return nil, fmt.Errorf("sqlite: list the blocked keys of broker %q in %s: %w", broker, s.table, err)
	}
	return keys, nil
}

func (s *Store) blocked(ctx context.Context, broker string, limit, maxCount int) ([]outbox.KeyBlock, error) {
	holders, err := s.holders(ctx, broker)
	if err != nil || len(holders) == 0 {
		return nil, err
	}
	slices.SortFunc(holders, func(a, b holder) int {
		if a.operator != b.operator {
			if a.operator {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.id, b.id))
	})
	holders = holders[:min(len(holders), limit)]
	if err := s.followers(ctx, broker, holders, maxCount); err != nil {
		return nil, err
	}
	keys := make([]outbox.KeyBlock, len(holders))
	for i := range holders {
		keys[i] = holders[i].KeyBlock
	}
	return keys, nil
}

// holders are the blocks of a broker, and the first failed row of each key that has no block.
func (s *Store) holders(ctx context.Context, broker string) ([]holder, error) {
	var holders []holder
	known := map[string]bool{}
	for _, text := range []string{s.sql.keyBlocks, s.sql.blockedFailed} {
		err := s.ask(ctx, func(rows *sql.Rows) error {
			h, err := readHolder(rows, broker)
			if !known[h.Key] {
				known[h.Key] = true
				holders = append(holders, h)
			}
			return err
		}, text, sql.Named("broker", broker), sql.Named("rows", blockedRows))
		if err != nil {
			return nil, err
		}
	}
	return holders, nil
}

func readHolder(rows *sql.Rows, broker string) (holder, error) {
	h := holder{KeyBlock: outbox.KeyBlock{Broker: broker}}
	var (
		since, until int64
		lastError    string
	)
	err := rows.Scan(&h.Key, &h.id, &h.MessageID, &h.Reason, &since, &until, &h.Status, &lastError)
	h.MessageID, h.Since, h.LastError = strings.ToLower(h.MessageID), time.UnixMicro(since).UTC(), decodeError(lastError)
	if h.operator = until == math.MaxInt64; h.operator {
		h.Status = cmp.Or(h.Status, outbox.StatusAbandoned) // the row may be gone
	} else {
		h.Until = time.UnixMicro(until).UTC()
	}
	if h.Reason == "backoff" && h.LastError != nil && h.LastError.At.After(h.Since) {
		h.Since = h.LastError.At.UTC() // a failed row that is not deferred waits since it failed
	}
	return h, err
}

// followers counts the rows that wait for each of the holders.
func (s *Store) followers(ctx context.Context, broker string, holders []holder, maxCount int) error {
	list := make([][2]any, len(holders))
	for i := range holders {
		list[i] = [2]any{holders[i].Key, holders[i].id}
	}
	encoded, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode the keys: %w", err)
	}
	return s.ask(ctx, func(rows *sql.Rows) error {
		var (
			place int
			n     int64
			cut   bool
		)
		err := rows.Scan(&place, &n, &cut)
		if err == nil {
			holders[place].Followers = outbox.Count{N: min(n, int64(maxCount)), More: cut || n > int64(maxCount)}
		}
		return err
	}, s.sql.followers, sql.Named("broker", broker), sql.Named("holders", string(encoded)), sql.Named("rows", blockedRows), sql.Named("count", maxCount+1))
}
