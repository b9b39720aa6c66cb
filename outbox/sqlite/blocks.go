package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// blocks reads the blocks of a shard that may be lifted, and the first followers of those that are
// done.
func (x transaction) blocks(ctx context.Context, c *driver.Claim) (blocks []driver.BlockState, err error) {
	rows, err := x.conn.QueryContext(ctx, x.sql.blocks, sql.Named("broker", c.Broker), sql.Named("shard", c.Shard), sql.Named("limit", driver.MaxBlocks),
		sql.Named("admits", c.Admits()), sql.Named("now", x.now))
	if err != nil {
		return nil, err
	}
	if err = each(rows, func(rows *sql.Rows) error {
		var b driver.BlockState
		err := rows.Scan(&b.ID, &b.Key, &b.HasKey, &b.Due, &b.Done, &b.Waits, &b.Scheduled)
		blocks = append(blocks, b)
		return err
	}); err != nil {
		return nil, err
	}
	done := 0
	for i := range blocks {
		b := &blocks[i]
		if !b.Done || !b.HasKey {
			continue
		}
		if done++; done > driver.MaxDone {
			break
		}
		followers, err := listIDs(ctx, x.conn, x.sql.followers, sql.Named("broker", c.Broker), sql.Named("shard", c.Shard), sql.Named("key", b.Key),
			sql.Named("limit", driver.MaxFollowers))
		if err != nil {
			return nil, err
		}
		b.Followers = driver.ByID(followers)
	}
	return blocks, nil
}

// Lift implements claims.Store.
func (x transaction) Lift(ctx context.Context, lift *driver.Lift) error {
	wake, rest, drop := blockIDs(lift.Wake), blockIDs(lift.Rest), blockIDs(lift.Drop)
	back := slices.Clone(wake)
	for i := range lift.Free {
		back = append(back, driver.IDs(lift.Free[i].Rows)...)
	}
	if len(back) > 0 {
		ids := sql.Named("ids", idList(back))
		_, err := x.conn.ExecContext(ctx, x.sql.setDeferred, ids, sql.Named("deferred", false))
		if err == nil { // a follower may have waited alone, before order was switched on
			_, err = x.conn.ExecContext(ctx, x.sql.dropLoners, ids)
		}
		if err == nil && len(wake) > 0 {
			_, err = x.conn.ExecContext(ctx, x.sql.wakeBlocks, sql.Named("ids", idList(wake)))
		}
		if err != nil {
			return err
		}
	}
	if len(lift.Admit) > 0 {
		if _, err := x.conn.ExecContext(ctx, x.sql.admit, sql.Named("ids", idList(driver.IDs(lift.Admit)))); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		ids := sql.Named("ids", idList(rest))
		_, err := x.conn.ExecContext(ctx, x.sql.restBlocks, ids)
		if err == nil {
			_, err = x.conn.ExecContext(ctx, x.sql.setDeferred, ids, sql.Named("deferred", true))
		}
		if err != nil {
			return err
		}
	}
	if len(drop) > 0 {
		if _, err := x.conn.ExecContext(ctx, x.sql.dropBlocks, sql.Named("ids", idList(drop)), sql.Named("shard", lift.Shard)); err != nil {
			return err
		}
	}
	return x.move(ctx, lift)
}

// move makes the last of those that a block let through the key's next block, where there are more.
func (x transaction) move(ctx context.Context, lift *driver.Lift) error {
	for i := range lift.Free {
		f := &lift.Free[i]
		if !f.Move {
			continue
		}
		if _, err := x.conn.ExecContext(ctx, x.sql.moveBlock, sql.Named("block", f.Block.ID), sql.Named("next", f.Rows[len(f.Rows)-1].ID),
			sql.Named("shard", lift.Shard)); err != nil {
			return err
		}
	}
	return nil
}

// Defer implements claims.Store.
func (x transaction) Defer(ctx context.Context, d *driver.Deferral) (int, error) {
	blocks := idList(driver.IDs(d.Blocks))
	if _, err := x.conn.ExecContext(ctx, x.sql.deferBlocks, sql.Named("ids", blocks), sql.Named("unordered", d.Unordered), sql.Named("now", x.now)); err != nil {
		return 0, err
	}
	result, err := x.conn.ExecContext(ctx, x.sql.setDeferred, sql.Named("ids", idList(driver.IDs(d.Rows))), sql.Named("deferred", true))
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// Defer implements driver.Delivery.
func (s *Store) Defer(ctx context.Context, claim *driver.Claim) (deferred int, err error) {
	err = s.write(ctx, func(conn *sql.Conn) error {
		deferred, err = claims.Defer(ctx, transaction{s, conn, s.micros()}, claim)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: defer waiting rows in %s: %w", s.table, err)
	}
	return deferred, nil
}

func blockIDs(blocks []driver.BlockState) []int64 {
	ids := make([]int64, len(blocks))
	for i := range blocks {
		ids[i] = blocks[i].ID
	}
	return ids
}

// listIDs runs a statement that answers with ids.
func listIDs(ctx context.Context, conn *sql.Conn, text string, args ...any) ([]int64, error) {
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	var ids []int64
	err = each(rows, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// idList is how ids travel into a statement.
func idList(ids []int64) string {
	list, err := json.Marshal(append([]int64{}, ids...)) // none is an empty list, not null
	if err != nil {
		panic(fmt.Sprintf("numbers always encode: %v", err))
	}
	return string(list)
}
