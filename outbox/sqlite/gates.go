package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
)

// How much one claim brings back: gates that are due; gates that are done, and followers of each of these. It bounds how
// long the claim keeps other writers waiting.
const (
	wakeLimit    = 500
	advanceGates = 10
	advanceRows  = 500
)

// gates are those of one lane, in the hands of a transaction.
type gates struct {
	*Store

	conn   *sql.Conn
	broker string
	lane   int
	now    int64
}

// stir brings back a bounded number of gates whose time has come, and moves on those that are back: one whose message is
// finished lets followers through, one that must wait again leaves.
func (g gates) stir(ctx context.Context) error {
	due, err := listIDs(ctx, g.conn, g.sql.wake, sql.Named("broker", g.broker), sql.Named("lane", g.lane), sql.Named("now", g.now),
		sql.Named("limit", wakeLimit))
	if err != nil {
		return err
	}
	if len(due) > 0 {
		if _, err := g.setParked(ctx, g.conn, idList(due), false); err != nil {
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
		if _, err := g.conn.ExecContext(ctx, g.sql.restGates, sql.Named("ids", idList(resting)), sql.Named("now", g.now)); err != nil {
			return err
		}
		if _, err := g.setParked(ctx, g.conn, idList(resting), true); err != nil {
			return err
		}
	}
	for _, gate := range done[:min(len(done), advanceGates)] {
		if err := g.letThrough(ctx, gate); err != nil {
			return err
		}
	}
	return nil
}

type doneGate struct {
	id  int64
	key string
}

// back reads the gates that are back in the claim's way: those that are done, and those that must wait again.
func (g gates) back(ctx context.Context) (done []doneGate, resting []int64, err error) {
	rows, err := g.conn.QueryContext(ctx, g.sql.gates, sql.Named("broker", g.broker), sql.Named("lane", g.lane), sql.Named("now", g.now))
	if err != nil {
		return nil, nil, err
	}
	err = each(rows, func(rows *sql.Rows) error {
		var (
			gate   doneGate
			isDone bool
		)
		if err := rows.Scan(&gate.id, &gate.key, &isDone); err != nil {
			return err
		}
		if isDone {
			done = append(done, gate)
		} else {
			resting = append(resting, gate.id)
		}
		return nil
	})
	return done, resting, err
}

// letThrough brings back the next followers of a gate. The last of them is the next gate; when it is not known that there
// are more, the key is free.
func (g gates) letThrough(ctx context.Context, gate doneGate) error {
	through, err := listIDs(ctx, g.conn, g.sql.letThrough, sql.Named("broker", g.broker), sql.Named("key", gate.key), sql.Named("limit", advanceRows))
	if err != nil {
		return err
	}
	// A follower may have waited alone, before order was switched on. It does so no more.
	if _, err := g.conn.ExecContext(ctx, g.sql.dropLoners, sql.Named("ids", idList(through))); err != nil {
		return err
	}
	if len(through) < advanceRows {
		_, err = g.conn.ExecContext(ctx, g.sql.dropGate, sql.Named("gate", gate.id))
	} else {
		_, err = g.conn.ExecContext(ctx, g.sql.moveGate, sql.Named("gate", gate.id), sql.Named("next", slices.Max(through)))
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
