package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// blocks reads the blocks of a shard that may be lifted, and the first followers of those that are
// done. The version is read first: whatever changes afterwards makes the decision void.
func (s *Store) blocks(ctx context.Context, c *driver.Claim) (version int64, blocks []driver.BlockState, err error) {
	given := args{"broker": c.Broker, "shard": c.Shard, "most": driver.MaxBlocks, "admits": c.Admits()}
	found, err := s.list(ctx, s.db, "version", given)
	if err != nil {
		return 0, nil, err
	}
	if version = found[0]; version < 0 { // nobody has claimed from the shard yet
		if _, err = s.exec(ctx, s.db, "make_shard", given); err != nil {
			return 0, nil, err
		}
		version = 0
	}
	err = s.query(ctx, s.db, "blocks", given, func(scan scanner) error {
		var b driver.BlockState
		err := scan(&b.ID, &b.Key, &b.HasKey, &b.Due, &b.Done, &b.Waits, &b.Scheduled)
		blocks = append(blocks, b)
		return err
	})
	done := 0
	for i := range blocks {
		b := &blocks[i]
		if err != nil || !b.Done || !b.HasKey {
			continue
		}
		if done++; done > driver.MaxDone {
			break
		}
		var followers []int64
		followers, err = s.list(ctx, s.db, "followers", args{"broker": c.Broker, "key": b.Key, "shard": c.Shard, "most": driver.MaxFollowers})
		b.Followers = driver.ByID(followers)
	}
	return version, blocks, err
}

// Lift implements claims.Store.
func (s thin) Lift(ctx context.Context, lift *driver.Lift) error {
	err := decided(ctx, func() error { return s.transaction(ctx, func(tx *sql.Tx) error { return s.lift(ctx, tx, lift) }) })
	if err == nil {
		s.water.changed(lift.Broker, lift.Shard, lift.Version, broughtBack(lift))
	}
	return err
}

// broughtBack are the rows that a lift brings back, in the order of their ids.
func broughtBack(lift *driver.Lift) []int64 {
	back := append(blockIDs(lift.Wake), driver.IDs(lift.Admit)...)
	for i := range lift.Free {
		back = append(back, driver.IDs(lift.Free[i].Rows)...)
	}
	slices.Sort(back)
	return back
}

func (s *Store) lift(ctx context.Context, tx *sql.Tx, lift *driver.Lift) error {
	if err := s.begin(ctx, tx, lift.Broker, lift.Shard, lift.Version); err != nil {
		return err
	}
	back, rest, admitted := broughtBack(lift), blockIDs(lift.Rest), driver.IDs(lift.Admit)
	slices.Sort(admitted)
	if len(back) > 0 && len(rest) > 0 {
		if _, err := s.lockRows(ctx, tx, slices.Sorted(slices.Values(append(slices.Clone(back), rest...)))); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		ids        []int64
		statements []string
	}{
		{back, []string{"bring_back", "drop_loners"}}, // a follower may have waited alone, before order was switched on
		{blockIDs(lift.Wake), []string{"wake_blocks"}},
		{admitted, []string{"admit"}},
		{rest, []string{"set_aside", "rest_blocks"}},
		{blockIDs(lift.Drop), []string{"drop_blocks"}},
	} {
		if len(step.ids) == 0 {
			continue
		}
		if err := s.inTurn(ctx, tx, args{"ids": jsonList(step.ids), "shard": lift.Shard}, step.statements...); err != nil {
			return err
		}
	}
	for i := range lift.Free { // the last of those that a block let through is the key's next one, where there are more
		f := &lift.Free[i]
		if !f.Move {
			continue
		}
		if _, err := s.exec(ctx, tx, "move_block", args{"block": f.Block.ID, "next": f.Rows[len(f.Rows)-1].ID, "shard": lift.Shard}); err != nil {
			return err
		}
	}
	return nil
}

// lockRows locks rows in the order of their ids, and returns those that are in the claim's way and
// wait for a time.
func (s *Store) lockRows(ctx context.Context, tx *sql.Tx, ids []int64) (waiting []int64, err error) {
	err = s.query(ctx, tx, "lock_rows", args{"ids": jsonList(ids)}, func(scan scanner) error {
		var (
			id    int64
			waits bool
		)
		err := scan(&id, &waits)
		if waits {
			waiting = append(waiting, id)
		}
		return err
	})
	return waiting, err
}

// begin locks a shard and counts a change of it.
func (s *Store) begin(ctx context.Context, tx *sql.Tx, broker string, shard int, version int64) error {
	if err := s.lock(ctx, tx, "lock", broker, shard, version); err != nil {
		return held(err)
	}
	_, err := s.exec(ctx, tx, "turn", args{"broker": broker, "shard": shard})
	return err
}

func blockIDs(blocks []driver.BlockState) []int64 {
	ids := make([]int64, len(blocks))
	for i := range blocks {
		ids[i] = blocks[i].ID
	}
	slices.Sort(ids)
	return ids
}

// Defer implements claims.Store. A block whose time has come, or that another transaction has
// claimed, is none: the decision is made anew.
func (s thin) Defer(ctx context.Context, d *driver.Deferral) (deferred int, err error) {
	err = decided(ctx, func() error {
		return s.transaction(ctx, func(tx *sql.Tx) error {
			deferred, err = s.deferRows(ctx, tx, d)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	s.water.changed(d.Broker, d.Shard, d.Version, nil)
	return deferred, nil
}

func (s *Store) deferRows(ctx context.Context, tx *sql.Tx, d *driver.Deferral) (int, error) {
	if err := s.begin(ctx, tx, d.Broker, d.Shard, d.Version); err != nil {
		return 0, err
	}
	if len(d.Blocks) > 0 {
		waiting, err := s.lockRows(ctx, tx, driver.IDs(d.Rows)) // blocks are among them
		if err == nil && slices.ContainsFunc(d.Blocks, func(row driver.Ref) bool { _, found := slices.BinarySearch(waiting, row.ID); return !found }) {
			err = claims.ErrConflict
		}
		if err == nil {
			err = s.inTurn(ctx, tx, args{"ids": jsonList(driver.IDs(d.Blocks)), "unordered": d.Unordered}, "wait_again", "make_blocks")
		}
		if err != nil {
			return 0, err
		}
	}
	return s.exec(ctx, tx, "set_aside", args{"ids": jsonList(driver.IDs(d.Rows))})
}

// Defer implements driver.Delivery.
func (s *Store) Defer(ctx context.Context, claim *driver.Claim) (int, error) {
	deferred, err := claims.Defer(ctx, thin{s}, claim)
	if err != nil {
		return 0, fmt.Errorf("mysql: defer waiting rows in %s: %w", s.table, explain(err))
	}
	return deferred, nil
}
