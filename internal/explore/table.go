package explore

import "slices"

// Status is the state of a row.
type Status uint8

// The states of a row, as in package outbox.
const (
	Pending Status = iota
	Processing
	Failed
	Published
	Abandoned
)

// String is the text that stands in the status column.
func (s Status) String() string {
	return [...]string{"pending", "processing", "failed", "published", "abandoned"}[s]
}

// Terminal reports whether a row is done.
func (s Status) Terminal() bool { return s == Published || s == Abandoned }

// Class is the shard of a row: the classes of package outbox, in their order. Order is kept within a
// class: rows of one key and of different classes know nothing of each other.
type Class uint8

// The classes of rows by their priority.
const (
	Normal Class = iota
	Backfill
	Urgent
	Classes // their number
)

// String names a class in a trace.
func (c Class) String() string { return [Classes]string{"normal", "backfill", "urgent"}[c] }

// A Row is one row of the table.
type Row struct {
	ID    int
	Key   int // 0 = no ordering key
	Class Class
	// At is the place of its available_at among those of other rows. It is a filter, never an
	// order: nothing but a broken protocol looks at it.
	At int
	// Size is how many bytes its payload has.
	Size int
	// Dead rows cannot be sent: malformed, or their time to live is over.
	Dead   bool
	Status Status
	// Waits says that a time lies ahead: in Processing the end of the lease, in the other states that of
	// the backoff, or of a scheduled row its available_at.
	Waits bool
	// Scheduled says that available_at is set. The row is invisible to its key until a lift admits it.
	Scheduled bool
	// Token is the fence of the claim that has it, 0 = none.
	Token             int
	Attempts, Crashes int
	Isolated          bool // the claim that took it last took nothing else
	Deferred          bool
}

// sameKey reports whether two rows keep an order: both are of one key, and of one class.
func (r *Row) sameKey(other *Row) bool {
	return r.Key != 0 && r.Key == other.Key && r.Class == other.Class
}

func (r *Row) open() bool    { return !r.Status.Terminal() }
func (r *Row) leased() bool  { return r.Status == Processing }
func (r *Row) rests() bool   { return !r.leased() && r.Waits } // for a time
func (r *Row) inShard() bool { return r.open() && !r.Deferred && !r.Scheduled }
func (r *Row) due() bool     { return r.open() && r.Scheduled && !r.Waits } // its schedule has come

// Wake says what a block waits for.
type Wake uint8

// The states of a block.
const (
	Rests    Wake = iota // for a time that lies ahead
	Due                  // for a claim that brings its row back: the time has come
	Back                 // for its row, which is back in the claim's way, to be done (wake_at is NULL)
	Operator             // for an operator (wake_at is infinity)
)

// String names a state of a block in a trace.
func (w Wake) String() string { return [...]string{"rests", "due", "back", "operator"}[w] }

// A Block is a row that waits out of the claim's way. With a key it holds back every later row of
// the key in its shard.
type Block struct {
	Row   int // its id
	Key   int // 0 = it waits alone
	Shard Class
	Wake  Wake
}

// A Table is what the database holds.
type Table struct {
	Rows   []Row   // in the order of ids
	Blocks []Block // in the order of ids
	Token  int     // the last that was given out; a token is never given out again
	// Version counts the changes of key blocks, and of rows that come back: what was decided before
	// such a change is decided anew.
	Version int
}

// Row returns the row of an id, nil when there is none.
func (t *Table) Row(id int) *Row {
	for i := range t.Rows {
		if t.Rows[i].ID == id {
			return &t.Rows[i]
		}
	}
	return nil
}

// block returns the block that a row is; nil when it is none.
func (t *Table) block(id int) *Block {
	for i := range t.Blocks {
		if t.Blocks[i].Row == id {
			return &t.Blocks[i]
		}
	}
	return nil
}

// blockOf returns the block of a key in a shard, nil when it has none.
func (t *Table) blockOf(key int, shard Class) *Block {
	for i := range t.Blocks {
		if g := &t.Blocks[i]; key != 0 && g.Key == key && g.Shard == shard {
			return &t.Blocks[i]
		}
	}
	return nil
}

// behindBlock reports whether a block of its key stands before a row.
func (t *Table) behindBlock(r *Row) bool {
	g := t.blockOf(r.Key, r.Class)
	return g != nil && g.Row < r.ID
}

// scheduledBefore lists the earlier rows of a row's key that are scheduled.
func (t *Table) scheduledBefore(r *Row) (ids []int) {
	for i := range t.Rows {
		if other := &t.Rows[i]; other.ID < r.ID && other.Scheduled && other.open() && r.sameKey(other) {
			ids = append(ids, other.ID)
		}
	}
	return ids
}

// brings reports whether a lift of a shard may have something to do, now or later.
func (t *Table) brings(shard Class) bool { return len(t.Blocks) > 0 || len(t.due(shard, 1)) > 0 }

func (t *Table) addBlock(g Block) {
	at, _ := slices.BinarySearchFunc(t.Blocks, g.Row, func(g Block, id int) int { return g.Row - id })
	t.Blocks = slices.Insert(t.Blocks, at, g)
}

func (t *Table) removeBlock(id int) {
	t.Blocks = slices.DeleteFunc(t.Blocks, func(g Block) bool { return g.Row == id })
}

// insert makes a committed row visible. Its id can be below those of others.
func (t *Table) insert(r Row) {
	at, _ := slices.BinarySearchFunc(t.Rows, r.ID, func(r Row, id int) int { return r.ID - id })
	t.Rows = slices.Insert(t.Rows, at, r)
}

// shard lists the first open rows of a shard, no more than window.
func (t *Table) shard(shard Class, window int) []*Row {
	rows := make([]*Row, 0, len(t.Rows))
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Class == shard && r.inShard() && len(rows) < window {
			rows = append(rows, r)
		}
	}
	return rows
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
