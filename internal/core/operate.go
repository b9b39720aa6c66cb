package core

import (
	"slices"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// An Act is what an operator does to rows.
type Act uint8

// The acts.
const (
	Requeue     Act = iota // rows that failed, wait or are abandoned are pending again
	Replay                 // published rows are pending again
	Abandon                // open rows are abandoned
	Acknowledge            // abandoned rows are marked as seen
	Discard                // abandoned rows are removed
	UnblockRows            // keys go on without the abandoned rows for which they wait for an operator
)

// back reports whether an act makes rows pending again.
func (a Act) back() bool { return a == Requeue || a == Replay }

// An Operand is a row that an operator acts on. Times were compared by the database's clock.
type Operand struct {
	driver.Ref

	Broker string
	// Key is the ordering key; empty = none.
	Key    string
	Shard  int
	Status outbox.Status
	// Waits is true while the lease runs, or the backoff or the schedule lies ahead.
	Waits bool
	// Deferred is true while the row is out of the claim's way. Where no block brings it back, it is
	// stranded.
	Deferred bool
}

// A Block is an entry among the key blocks: a row that is deferred, and with a key blocks the later
// rows of the key in its shard. A row that was given another priority can be one in two shards.
type Block struct {
	driver.Ref // of the row

	Broker string
	// Key is empty where the row waits alone.
	Key   string
	Shard int
	// Operator is true while the key waits for an operator.
	Operator bool
	// Back is true when the row is in the way of claims again: the block goes when it is done.
	Back bool
}

// A Move puts a block in another row's place, or leaves it in its own, and has it wait for nothing
// but that row: what is behind follows when the row is done.
type Move struct {
	Block

	To driver.Ref
}

// A Repair is what an act changes: first the blocks, then the rows.
type Repair struct {
	// Forget are entries of rows that wait alone, and do so no more.
	Forget []Block
	Moves  []Move
	// Rows are those of the operands that the act is for. Behind says, of each that is pending
	// again, that it is deferred: the block of its key is before it.
	Rows   []Operand
	Behind []bool
}

// For reports whether an act is for a row. Rows that a worker has claimed are left alone until their
// lease is over, and a requeue is for pending rows only where they wait for a time, or are stranded:
// [Operate] leaves out those that are deferred and have a block.
func (a Act) For(row *Operand) bool {
	claimed := row.Status == outbox.StatusProcessing && row.Waits
	switch a {
	case Requeue:
		return row.Status != outbox.StatusPublished && !claimed && (row.Status != outbox.StatusPending || row.Waits || row.Deferred)
	case Replay:
		return row.Status == outbox.StatusPublished
	case Acknowledge, Discard, UnblockRows:
		return row.Status == outbox.StatusAbandoned
	default:
		return !row.Status.Terminal() && !claimed
	}
}

// A place is that of the rows of one key that have an order.
type place struct {
	broker, key string
	shard       int
}

// identity tells rows apart: by the id, or where ids can repeat by the message and its broker.
type identity struct {
	ref    driver.Ref
	broker string
}

func identify(ref driver.Ref, broker string) identity {
	if ref.MessageID == uuid.Nil {
		return identity{ref: ref}
	}
	ref.ID = 0
	return identity{ref, broker}
}

// Operate decides what an act on rows, in the order of their ids, does to them and to the blocks of
// their keys. blocks are all entries of these rows, and all of their keys and brokers; others may be
// among them.
//
// A row that comes back takes its old place. The first one of its key and shard becomes the block
// where it is the block's row or before it, so that what is later waits for it. A key that waits for
// an operator stays as it is, unless the row that it waits for is among those that come back.
func Operate(act Act, rows []Operand, blocks []Block) Repair {
	o := operation{act: act, own: map[identity]*Operand{}, first: map[place]driver.Ref{}, entries: map[identity][]Block{}, at: map[place]int64{}}
	for i := range rows {
		if row := &rows[i]; act != Requeue || row.Status != outbox.StatusPending || row.Waits || !blocked(row, blocks) {
			o.add(row)
		}
	}
	for _, b := range blocks {
		id := identify(b.Ref, b.Broker)
		o.entries[id] = append(o.entries[id], b)
	}
	for _, b := range blocks {
		o.block(b)
	}
	if act == UnblockRows {
		o.Rows = nil // they stay as they are
	}
	if act.back() {
		o.Behind = make([]bool, len(o.Rows))
		for i := range o.Rows {
			row := &o.Rows[i]
			block, ok := o.at[place{row.Broker, row.Key, row.Shard}]
			o.Behind[i] = ok && row.Key != "" && block < row.ID
		}
	}
	return o.Repair
}

// blocked reports whether a row is among the key blocks, or behind one of its key.
func blocked(row *Operand, blocks []Block) bool {
	return slices.ContainsFunc(blocks, func(b Block) bool {
		return identify(b.Ref, b.Broker) == identify(row.Ref, row.Broker) || row.Key != "" && b.Key == row.Key && b.Broker == row.Broker && b.Shard == row.Shard
	})
}

// An operation is a decision in the making.
type operation struct {
	Repair

	act     Act
	own     map[identity]*Operand // the rows that it is for
	first   map[place]driver.Ref  // by key: the first row that comes back
	entries map[identity][]Block  // by row
	at      map[place]int64       // by key: where its block is in the end
}

func (o *operation) add(row *Operand) {
	if !o.act.For(row) {
		return
	}
	o.Rows = append(o.Rows, *row)
	o.own[identify(row.Ref, row.Broker)] = row
	at := place{row.Broker, row.Key, row.Shard}
	if _, ok := o.first[at]; !ok && row.Key != "" && o.act.back() {
		o.first[at] = row.Ref
	}
}

// block decides what becomes of an entry.
func (o *operation) block(b Block) {
	row := o.own[identify(b.Ref, b.Broker)]
	if o.act == Acknowledge || o.act == UnblockRows && (!b.Operator || b.Key == "") {
		return
	}
	if b.Key == "" {
		if row != nil {
			o.Forget = append(o.Forget, b)
		}
		return
	}
	here := place{b.Broker, b.Key, b.Shard}
	o.at[here] = b.ID
	next, comes := o.first[here]
	switch {
	case comes && next.ID <= b.ID && (row != nil || !b.Operator) && !another(o.entries[identify(next, b.Broker)], &b):
		o.move(b, next)
		o.at[here] = next.ID
	case row != nil:
		o.move(b, b.Ref) // what is behind it there waits for it, or goes on with the next claim
	}
}

// another reports whether a row is the block of another key in the shard of b: the key or the broker
// of a row, or of its block, was changed by hand. A row has one entry in a shard.
func another(entries []Block, b *Block) bool {
	for i := range entries {
		if e := &entries[i]; e.Key != "" && (e.Key != b.Key || e.Broker != b.Broker) && e.Shard == b.Shard {
			return true
		}
	}
	return false
}

func (r *Repair) move(b Block, to driver.Ref) {
	if !b.Back || to != b.Ref {
		r.Moves = append(r.Moves, Move{b, to})
	}
}

// Unblock decides which blocks of a key, one in each shard, let it go on: those that wait for an
// operator. The next claims move them on, without their rows.
func Unblock(blocks []Block) (moves []Move) {
	for _, b := range blocks {
		if b.Key != "" && b.Operator {
			moves = append(moves, Move{b, b.Ref})
		}
	}
	return moves
}
