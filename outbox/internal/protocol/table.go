package protocol

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

// Class is the lane of a row: the classes of package outbox, in their order.
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
	// At is the place of its available_at among those of other rows. It is a filter, never an order: nothing but a broken
	// protocol looks at it.
	At int
	// Size is how many bytes its payload has.
	Size int
	// Dead rows cannot be sent: malformed, or their time to live is over.
	Dead   bool
	Status Status
	// Waits says that locked_until or available_at lies ahead: in Processing the lease is not over, in the other states the
	// backoff or the schedule.
	Waits bool
	// Token is the fence of the claim that has it, 0 = none.
	Token             int
	Attempts, Crashes int
	Isolated          bool // the claim that took it last took nothing else
	Parked            bool
}

func (r *Row) open() bool     { return !r.Status.Terminal() }
func (r *Row) leased() bool   { return r.Status == Processing }
func (r *Row) inHand() bool   { return r.leased() && r.Waits }  // under a lease that runs
func (r *Row) rests() bool    { return !r.leased() && r.Waits } // for a time
func (r *Row) inLane() bool   { return r.open() && !r.Parked }
func (r *Row) suspicion() int { return r.Crashes + btoi(r.leased()) }

// Wake says what a gate waits for.
type Wake uint8

// The states of a gate.
const (
	Rests    Wake = iota // for a time that lies ahead
	Due                  // for a claim that brings its row back: the time has come
	Back                 // for its row, which is back in the claim's way, to be done (wake_at is NULL)
	Operator             // for an operator (wake_at is infinity)
)

// String names a state of a gate in a trace.
func (w Wake) String() string { return [...]string{"rests", "due", "back", "operator"}[w] }

// A Gate is a row that waits out of the claim's way. With a key it holds back every later row of the key.
type Gate struct {
	Row  int // its id
	Key  int // 0 = it waits alone
	Lane Class
	Wake Wake
}

// A Table is what the database holds.
type Table struct {
	Rows  []Row  // in the order of ids
	Gates []Gate // in the order of ids
	Token int    // the last that was given out; a token is never given out again
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

// gate returns the gate that a row is; nil when it is none.
func (t *Table) gate(id int) *Gate {
	for i := range t.Gates {
		if t.Gates[i].Row == id {
			return &t.Gates[i]
		}
	}
	return nil
}

// gateOf returns the gate of a key, nil when it has none.
func (t *Table) gateOf(key int) *Gate {
	for i := range t.Gates {
		if key != 0 && t.Gates[i].Key == key {
			return &t.Gates[i]
		}
	}
	return nil
}

// behindGate reports whether a gate of its key stands before a row.
func (t *Table) behindGate(r *Row) bool {
	g := t.gateOf(r.Key)
	return g != nil && g.Row < r.ID
}

func (t *Table) addGate(g Gate) {
	at, _ := slices.BinarySearchFunc(t.Gates, g.Row, func(g Gate, id int) int { return g.Row - id })
	t.Gates = slices.Insert(t.Gates, at, g)
}

func (t *Table) removeGate(id int) {
	t.Gates = slices.DeleteFunc(t.Gates, func(g Gate) bool { return g.Row == id })
}

// insert makes a committed row visible. Its id can be below those of others.
func (t *Table) insert(r Row) {
	at, _ := slices.BinarySearchFunc(t.Rows, r.ID, func(r Row, id int) int { return r.ID - id })
	t.Rows = slices.Insert(t.Rows, at, r)
}

// lane lists the first open rows of a lane, no more than window.
func (t *Table) lane(lane Class, window int) []*Row {
	rows := make([]*Row, 0, len(t.Rows))
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Class == lane && r.inLane() && len(rows) < window {
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
