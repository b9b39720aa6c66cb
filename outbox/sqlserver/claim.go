package sqlserver

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/gorm-fanout/fanout/internal/sqlscan"
	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// conflict turns an error by which a batch says that what was decided about has changed, or that it
// was broken off in favour of another transaction, into claims.ErrConflict.
func conflict(err error) error {
	if transient(err) {
		return claims.ErrConflict
	}
	return err
}

// Take implements claims.Store.
func (s thin) Take(ctx context.Context, c *driver.Claim, choice *driver.Choice) (batch driver.Batch, err error) {
	args, err := takeArgs(c, &batch)
	if err != nil {
		return driver.Batch{}, err
	}
	ids, err := jsonList(driver.IDs(choice.Rows))
	if err != nil {
		return driver.Batch{}, err
	}
	batch.Seen = len(choice.Rows)
	var taken *int
	err = s.query(ctx, s.sql.take, append(args, sql.Named("decided", choice.Version), sql.Named("ids", ids)), resultSets{
		"fanout_taken": func(rows *sql.Rows) error { return scanCount(rows, &taken) },
		"fanout_id":    func(rows *sql.Rows) error { return readMessage(rows, &batch, c.Limit) },
	})
	if err == nil && taken == nil {
		err = errIncomplete
	}
	if err != nil {
		return driver.Batch{}, conflict(err)
	}
	return batch, nil
}

// Window implements claims.Store.
func (s thin) Window(ctx context.Context, c *driver.Claim) (w driver.Window, err error) {
	args := append(shardArgs(c.Broker, c.Shard), sql.Named("window", int64(c.Window)), sql.Named("bytes", driver.Bound(c.Bytes)))
	read := false
	err = retry(ctx, func() error {
		w, read = driver.Window{}, false
		return s.query(ctx, s.sql.window, args, resultSets{
			"fanout_window": func(rows *sql.Rows) error {
				read = true
				return rows.Scan(&w.Version, &w.Blocked)
			},
			"fanout_row": func(rows *sql.Rows) error { return readRow(rows, &w) },
		})
	})
	if err == nil && !read {
		err = errIncomplete
	}
	return w, err
}

// Defer implements claims.Store.
func (s thin) Defer(ctx context.Context, d *driver.Deferral) (int, error) {
	blocks, err := jsonList(driver.IDs(d.Blocks))
	if err != nil {
		return 0, err
	}
	rows, err := jsonList(driver.IDs(d.Rows))
	if err != nil {
		return 0, err
	}
	var deferred *int
	args := append(shardArgs(d.Broker, d.Shard),
		sql.Named("decided", d.Version), sql.Named("blocks", blocks), sql.Named("rows", rows), sql.Named("unordered", d.Unordered))
	err = s.query(ctx, s.sql.deferRows, args, resultSets{
		"fanout_deferred": func(rows *sql.Rows) error { return scanCount(rows, &deferred) },
	})
	switch {
	case err != nil:
		return 0, conflict(err)
	case deferred == nil:
		return 0, errIncomplete
	}
	return *deferred, nil
}

// changed is what becomes of a block or of a follower: see lift.sql.
type changed struct {
	Kind  int   `json:"k"`
	ID    int64 `json:"i"`
	Block int64 `json:"b,omitempty"`
}

// The kinds of changes.
const (
	wakes = iota + 1
	rests
	drops
	frees
	freesAndMoves
	admits
)

// Lift implements claims.Store.
func (s thin) Lift(ctx context.Context, lift *driver.Lift) error {
	var list []changed
	for kind, blocks := range map[int][]driver.BlockState{wakes: lift.Wake, rests: lift.Rest, drops: lift.Drop} {
		for i := range blocks {
			list = append(list, changed{Kind: kind, ID: blocks[i].ID})
		}
	}
	for i := range lift.Free {
		freed := &lift.Free[i]
		for n, row := range freed.Rows {
			c := changed{Kind: frees, ID: row.ID}
			if freed.Move && n == len(freed.Rows)-1 {
				c.Kind, c.Block = freesAndMoves, freed.Block.ID
			}
			list = append(list, c)
		}
	}
	for _, row := range lift.Admit {
		list = append(list, changed{Kind: admits, ID: row.ID})
	}
	// All lock rows in the order of their ids, so that few of them deadlock.
	slices.SortFunc(list, func(a, b changed) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Kind, b.Kind)) })
	changes, err := jsonList(list)
	if err != nil {
		return err
	}
	args := append(shardArgs(lift.Broker, lift.Shard), sql.Named("decided", lift.Version), sql.Named("changes", changes))
	return conflict(s.query(ctx, s.sql.lift, args, nil))
}

// readRow reads a row of a window.
func readRow(rows *sql.Rows, w *driver.Window) error {
	if w == nil {
		return errIncomplete // what announces the rows is missing
	}
	var (
		row   driver.Row
		block sql.NullInt64
	)
	err := rows.Scan(&row.ID, &row.Key, &row.Held, &row.Leased, &row.Waits, (*sqlscan.Int)(&row.Crashes), &row.Bytes, &block)
	row.HasBlock, row.Block = block.Valid, block.Int64
	w.Rows = append(w.Rows, row)
	return err
}

// readBlock reads a block, which is identified by the id of its row here.
func readBlock(rows *sql.Rows, a *claims.Answer) error {
	var b driver.BlockState
	err := rows.Scan(&b.ID, &b.Key, &b.HasKey, &b.Due, &b.Done, &b.Waits, &b.Scheduled)
	a.Blocks = append(a.Blocks, b)
	return err
}

// readFollower reads a follower of one of the blocks, which come before, in the order of their ids.
func readFollower(rows *sql.Rows, blocks []driver.BlockState) error {
	var block, id int64
	if err := rows.Scan(&block, &id); err != nil {
		return err
	}
	at, found := slices.BinarySearchFunc(blocks, block, func(b driver.BlockState, id int64) int { return cmp.Compare(b.ID, id) })
	if !found {
		return errIncomplete
	}
	blocks[at].Followers = append(blocks[at].Followers, driver.Ref{ID: id})
	return nil
}

// readMessage reads one row of fetch.sql.
func readMessage(rows *sql.Rows, batch *driver.Batch, limit int) error {
	if batch.Messages == nil {
		batch.Messages = make([]driver.Message, 0, min(batch.Seen, limit))
	}
	batch.Messages = append(batch.Messages, driver.Message{})
	m := &batch.Messages[len(batch.Messages)-1]
	err := rows.Scan(&m.ID, &m.MessageID, &m.Stream, &m.Type, &m.OrderingKey, (*sqlscan.Int)(&m.Priority), &m.ContentType, &m.Headers,
		&m.CorrelationID, (*sqlscan.Int)(&m.Attempts), (*sqlscan.Int)(&m.Crashes), &m.CreatedAt, (*sqlscan.Micros)(&m.ExpiresIn), &m.Payload, &m.Unread)
	batch.Lease.FirstID, batch.Lease.LastID = batch.Messages[0].ID, m.ID
	return err
}
