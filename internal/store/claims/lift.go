package claims

import (
	"context"
	"errors"
	"slices"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// lockedBlocks is how many rows of blocks, or of followers that they let through, other sessions have
// locked, and which session that is for the first.
type lockedBlocks struct {
	rows int
	by   string
}

// lift brings back what blocks let through. Where another session has locked a row of a block, its own
// or a follower's, that block waits for it, and the others do not.
func lift(ctx context.Context, s Store, claim *driver.Claim, version int64, blocks []driver.BlockState, seen *lockedBlocks) (err error) {
	prober, ok := s.(Prober)
	for around := claim.AroundLocked; ; around = true {
		if around && ok {
			if blocks, err = unlocked(ctx, prober, claim.Broker, blocks, seen); err != nil {
				return err
			}
		}
		l := core.Lift(blocks, driver.MaxFollowers)
		if core.Nothing(&l) {
			return ErrConflict // nothing has changed, as where another claim was faster
		}
		l.Broker, l.Shard, l.Version = claim.Broker, claim.Shard, version
		if err = s.Lift(ctx, &l); around || !errors.Is(err, ErrLocked) {
			return err
		}
	}
}

// unlocked are the blocks of which no other session has locked a row.
func unlocked(ctx context.Context, s Prober, broker string, blocks []driver.BlockState, seen *lockedBlocks) (free []driver.BlockState, err error) {
	var rows []driver.Ref
	for i := range blocks {
		rows = append(rows, rowsOf(&blocks[i])...)
	}
	found, by, err := s.Locked(ctx, broker, rows)
	if err != nil {
		return nil, err
	}
	seen.rows, seen.by = len(found), by
	locked := set(found)
	for i := range blocks {
		if !slices.ContainsFunc(rowsOf(&blocks[i]), func(row driver.Ref) bool { return locked[row] }) {
			free = append(free, blocks[i])
		}
	}
	return free, nil
}

func set(rows []driver.Ref) map[driver.Ref]bool {
	all := make(map[driver.Ref]bool, len(rows))
	for _, row := range rows {
		all[row] = true
	}
	return all
}

// rowsOf are the rows that a lift changes for a block: its own, or what is behind one that is done.
func rowsOf(b *driver.BlockState) []driver.Ref {
	if b.Done {
		return b.Followers
	}
	return []driver.Ref{b.Ref()}
}

// liftable are the blocks of a claim's answer of which something becomes: of those that are done, only
// the first were read with their followers.
func liftable(blocks []driver.BlockState) (some []driver.BlockState) {
	done := 0
	for i := range blocks {
		b := &blocks[i]
		if b.Done && b.HasKey {
			if done++; done > driver.MaxDone {
				continue
			}
		}
		if b.Scheduled || b.Done || b.Waits || b.Due {
			some = append(some, *b)
		}
	}
	return some
}
