package driver

import "github.com/google/uuid"

// A Window is the head of a shard as one statement saw it: what the decision about a claim needs of
// each row, and nothing else.
type Window struct {
	// Version of the shard's key blocks, read no later than the rows.
	Version int64
	// Rows that are open, not deferred and not scheduled, in the order of their ids; of a claim without order only
	// those that are ready, and of one that looks ahead only those that can go.
	Rows []Row
	// Blocked is true when the broker has key blocks.
	Blocked bool
}

// Refs are the rows of the window.
func (w *Window) Refs() []Ref {
	rows := make([]Ref, len(w.Rows))
	for i := range w.Rows {
		rows[i] = w.Rows[i].Ref
	}
	return rows
}

// A Ref is a row of which something is decided.
type Ref struct {
	// ID is where the row stands: rows are read and delivered in the order of their ids.
	ID int64
	// MessageID is, with the broker, which row it is, where ids can repeat: on PostgreSQL, after an
	// identity has begun anew. Zero in stores whose tables know an id once.
	MessageID uuid.UUID
}

// ByID are rows of which the id is enough.
func ByID(ids []int64) []Ref {
	rows := make([]Ref, len(ids))
	for i, id := range ids {
		rows[i].ID = id
	}
	return rows
}

// IDs are those of rows, in their order.
func IDs(rows []Ref) []int64 {
	ids := make([]int64, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids
}

// A Row is one open row of a window. Times were compared by the database's clock.
type Row struct {
	Ref

	// Key is the ordering key; empty = none.
	Key string
	// Leased is true while the row is in processing, be its lease over or not.
	Leased bool
	// Waits is true while the lease runs, or the end of the backoff lies ahead.
	Waits bool
	// Held is true while another transaction writes the row, or has written it since the window
	// began to be read: it holds the later rows of its key, and is not taken. Databases whose reads
	// see one state of the table know of no such rows.
	Held bool
	// Crashes is how many leases of the row have run out.
	Crashes int
	// Bytes of payload and headers.
	Bytes int64
	// HasBlock tells that a key block of the shard holds the key back, and Block the id of the row
	// that is it.
	HasBlock bool
	Block    int64
}

// A Choice is which rows of a window a claim takes.
type Choice struct {
	// Version that the window had.
	Version int64
	// Rows in ascending order of their ids, of which none is there twice; at least one.
	Rows []Ref
}

// A Deferral takes rows out of the way of claims.
type Deferral struct {
	Broker  string
	Shard   int
	Version int64
	// Blocks are the rows that become blocks of their keys, or wait alone where Unordered is set.
	Blocks []Ref
	// Rows to defer, the blocks included, in ascending order of their ids.
	Rows      []Ref
	Unordered bool
}

// A BlockState is a block whose time has come, or that is back in the way of claims, and what has
// become of its row; or a scheduled row whose time has come.
type BlockState struct {
	// Scheduled is true for a scheduled row. Nothing else is said of it but which row it is.
	Scheduled bool
	// MessageID of the block's row.
	MessageID uuid.UUID
	// ID of the row.
	ID int64
	// Key that it holds back; HasKey is false for a row that waits alone.
	Key    string
	HasKey bool
	// Due is true when the block's time has come; else it is back in the way of claims.
	Due bool
	// Done is true when the row is finished, gone, or scheduled.
	Done bool
	// Waits is true when the row waits for a time that lies ahead.
	Waits bool
	// Followers are the first deferred rows of the key, in the order of their ids, for the first
	// blocks that are done.
	Followers []Ref
}

// Ref is the row.
func (b *BlockState) Ref() Ref { return Ref{ID: b.ID, MessageID: b.MessageID} }

// A Lift brings deferred rows back into the way of claims.
type Lift struct {
	Broker  string
	Shard   int
	Version int64
	// Admit are scheduled rows whose time has come: they become ordinary rows, at their place by id.
	Admit []Ref
	// Wake are blocks whose rows come back; those without a key are removed.
	Wake []BlockState
	// Rest are blocks whose rows must wait again.
	Rest []BlockState
	// Drop are blocks that no row waits for any more.
	Drop []BlockState
	// Free are followers that come back.
	Free []Freed
}

// Freed are followers of a block that come back.
type Freed struct {
	Block BlockState
	Rows  []Ref
	// Move is true when the last of them becomes the key's block, in the place of this one.
	Move bool
}

// How much one lift brings back: blocks that are due or back, blocks that are done, and followers
// of each of these. Together they stay below the size of a batch or two, so that it is a short
// transaction.
const (
	MaxBlocks    = 500
	MaxDone      = 10
	MaxFollowers = 500
)

// MaxNear is how many open rows lie between the first and the last row of a claim that looks ahead, at
// most: whoever completes it goes through them.
const MaxNear = 8000
