package sqladmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/core"
)

// What an operator does to rows and to the blocks of their keys is decided by package core. Here it
// is read, and written.

// pick reads rows, and locks them where the database holds locks between statements, in the order of
// their ids.
func (a *Admin) pick(ctx context.Context, conn Conn, found *rows) (picked []core.Operand, err error) {
	err = a.query(ctx, conn, "pick", found.args(), func(scan scanner) error {
		var (
			row     core.Operand
			message string
		)
		err := scan(&row.ID, &message, &row.Broker, &row.Key, &row.Shard, &row.Status, &row.Waits, &row.Deferred)
		row.MessageID = messageID(message)
		picked = append(picked, row)
		return err
	})
	slices.SortFunc(picked, func(a, b core.Operand) int { return cmp.Compare(a.ID, b.ID) })
	return picked, err
}

// entries reads entries of key blocks.
func (a *Admin) entries(ctx context.Context, conn Conn, statement string, given args) (blocks []core.Block, err error) {
	err = a.query(ctx, conn, statement, given, func(scan scanner) error {
		var (
			b       core.Block
			message string
		)
		err := scan(&b.ID, &message, &b.Broker, &b.Key, &b.Shard, &b.Operator, &b.Back)
		b.MessageID = messageID(message)
		blocks = append(blocks, b)
		return err
	})
	return blocks, err
}

// messageID is the zero one where the ids of the table tell rows apart.
func messageID(text string) uuid.UUID {
	id, _ := uuid.Parse(text) // of the database's own type
	return id
}

// repair writes what was decided about rows of some brokers, blocks first. Less than that is an error: something else has
// changed it, in spite of the locks.
func (a *Admin) repair(ctx context.Context, conn Conn, do *action, repair *core.Repair, blocks []core.Block, brokers []string) error {
	if do.statement() == "" { // the rows stay as they are
		given := moveArgs(repair.Moves)
		maps.Copy(given, a.locks(brokers))
		return a.changes(ctx, conn, "move_blocks", given, len(repair.Moves))
	}
	if len(repair.Rows) == 0 {
		return nil
	}
	given := rowArgs(repair)
	maps.Copy(given, do.given)
	if _, ok := a.statements["forget_blocks"]; !ok { // the statement is a batch that does it all
		maps.Copy(given, batchArgs(repair, blocks))
		maps.Copy(given, a.locks(brokers))
		return a.changes(ctx, conn, do.statement(), given, len(repair.Rows))
	}
	if err := a.changes(ctx, conn, "forget_blocks", blockArgs(repair.Forget), len(repair.Forget)); err != nil {
		return err
	}
	if err := a.changes(ctx, conn, "move_blocks", moveArgs(repair.Moves), len(repair.Moves)); err != nil {
		return err
	}
	return a.changes(ctx, conn, do.statement(), given, len(repair.Rows))
}

// ErrChanged says that rows or blocks were not any more as an act was decided about them.
var ErrChanged = errors.New("the rows were no longer as they had been read: does something else write to the tables of the outbox? Try again")

// changes runs a statement that has to change so many rows; of none it is not run.
func (a *Admin) changes(ctx context.Context, conn Conn, statement string, given args, want int) error {
	if want == 0 {
		return nil
	}
	n, err := a.exec(ctx, conn, statement, given)
	if err == nil && n != int64(want) {
		err = fmt.Errorf("%d of %d: %w", n, want, ErrChanged)
	}
	return err
}

// Databases take lists as arrays side by side, or as one JSON list.

func operandArgs(picked []core.Operand) args {
	var (
		found rows
		keys  = make([]string, len(picked))
	)
	for i := range picked {
		found.add(picked[i].ID, picked[i].MessageID.String(), picked[i].Broker)
		keys[i] = picked[i].Key
	}
	given := found.args()
	given["keys"] = List{keys}
	return given
}

// A listed row, or block, is an item of a JSON list.
type listed struct {
	ID       int64  `json:"id"`
	Shard    int    `json:"shard"`
	Status   string `json:"status,omitempty"`
	Waits    int    `json:"waits"`
	Behind   int    `json:"behind"`
	Operator int    `json:"operator"`
	Back     int    `json:"back"`
	To       int64  `json:"to"`
}

func rowArgs(repair *core.Repair) args {
	behind, list := make([]bool, len(repair.Rows)), make([]listed, len(repair.Rows))
	copy(behind, repair.Behind)
	for i := range repair.Rows {
		row := &repair.Rows[i]
		list[i] = listed{ID: row.ID, Shard: row.Shard, Status: string(row.Status), Waits: bit(row.Waits), Behind: bit(behind[i])}
	}
	given := operandArgs(repair.Rows)
	given["behind"], given["rows"] = List{behind}, List{list}
	return given
}

func blockArgs(blocks []core.Block) args {
	var (
		messages, brokers []string
		shards            []int
		list              = make([]listed, len(blocks))
	)
	for i := range blocks {
		b := &blocks[i]
		messages, brokers, shards = append(messages, b.MessageID.String()), append(brokers, b.Broker), append(shards, b.Shard)
		list[i] = listed{ID: b.ID, Shard: b.Shard, Operator: bit(b.Operator), Back: bit(b.Back)}
	}
	return args{"block_messages": List{messages}, "block_brokers": List{brokers}, "block_shards": List{shards}, "blocks": List{list}}
}

func moveArgs(moves []core.Move) args {
	var (
		blocks   = make([]core.Block, len(moves))
		messages = make([]string, len(moves))
		ids      = make([]int64, len(moves))
	)
	for i := range moves {
		blocks[i], messages[i], ids[i] = moves[i].Block, moves[i].To.MessageID.String(), moves[i].To.ID
	}
	given := blockArgs(blocks)
	list, _ := given["blocks"].(List).Items.([]listed)
	for i := range list {
		list[i].To = ids[i]
	}
	given["to_messages"], given["to_ids"], given["moves"] = List{messages}, List{ids}, List{list}
	return given
}

// batchArgs are the lists of a batch that does it all, and compares the blocks with those that were
// read.
func batchArgs(repair *core.Repair, blocks []core.Block) args {
	return args{"known": blockArgs(blocks)["blocks"], "forgotten": blockArgs(repair.Forget)["blocks"], "moves": moveArgs(repair.Moves)["moves"]}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
