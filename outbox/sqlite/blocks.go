package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
)

// How much one claim brings back: blocks that are due; blocks that are done, and followers of each of these. It bounds how
// long the claim keeps other writers waiting.
const (
	wakeLimit     = 500
	advanceBlocks = 10
	advanceRows   = 500
)

// blocks are those of one shard, in the hands of a transaction.
type blocks struct {
	*Store

	conn   *sql.Conn
	broker string
	shard  int
	now    int64
}

// stir brings back a bounded number of blocks whose time has come, and moves on those that are back: one whose message is
// finished lets followers through, one that must wait again leaves.
func (g blocks) stir(ctx context.Context) error {
	due, err := listIDs(ctx, g.conn, g.sql.wake, sql.Named("broker", g.broker), sql.Named("shard", g.shard), sql.Named("now", g.now),
		sql.Named("limit", wakeLimit))
	if err != nil {
		return err
	}
	if len(due) > 0 {
		if _, err := g.setDeferred(ctx, g.conn, idList(due), false); err != nil {
			return err
		}
		if _, err := g.conn.ExecContext(ctx, g.sql.dropLoners, sql.Named("ids", idList(due))); err != nil {
			return err
		}
	}
	done, resting, err := g.back(ctx)
	if err != nil {
		return err
	}
	if len(resting) > 0 {
		if _, err := g.conn.ExecContext(ctx, g.sql.restBlocks, sql.Named("ids", idList(resting)), sql.Named("now", g.now)); err != nil {
			return err
		}
		if _, err := g.setDeferred(ctx, g.conn, idList(resting), true); err != nil {
			return err
		}
	}
	for _, block := range done[:min(len(done), advanceBlocks)] {
		if err := g.letThrough(ctx, block); err != nil {
			return err
		}
	}
	return nil
}

type doneBlock struct {
	id  int64
	key string
}

// back reads the blocks that are back in the claim's way: those that are done, and those that must wait again.
func (g blocks) back(ctx context.Context) (done []doneBlock, resting []int64, err error) {
	rows, err := g.conn.QueryContext(ctx, g.sql.blocks, sql.Named("broker", g.broker), sql.Named("shard", g.shard), sql.Named("now", g.now))
	if err != nil {
		return nil, nil, err
	}
	err = each(rows, func(rows *sql.Rows) error {
		var (
			block  doneBlock
			isDone bool
		)
		if err := rows.Scan(&block.id, &block.key, &isDone); err != nil {
			return err
		}
		if isDone {
			done = append(done, block)
		} else {
			resting = append(resting, block.id)
		}
		return nil
	})
	return done, resting, err
}

// letThrough brings back the next followers of a block. The last of them is the next block; when it is not known that there
// are more, the key is free.
func (g blocks) letThrough(ctx context.Context, block doneBlock) error {
	through, err := listIDs(ctx, g.conn, g.sql.letThrough, sql.Named("broker", g.broker), sql.Named("key", block.key), sql.Named("limit", advanceRows))
	if err != nil {
		return err
	}
	// A follower may have waited alone, before order was switched on. It does so no more.
	if _, err := g.conn.ExecContext(ctx, g.sql.dropLoners, sql.Named("ids", idList(through))); err != nil {
		return err
	}
	if len(through) < advanceRows {
		_, err = g.conn.ExecContext(ctx, g.sql.dropBlock, sql.Named("block", block.id))
	} else {
		_, err = g.conn.ExecContext(ctx, g.sql.moveBlock, sql.Named("block", block.id), sql.Named("next", slices.Max(through)))
	}
	return err
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
