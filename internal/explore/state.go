package explore

import "slices"

// A State is the whole world: the table, what workers remember, and what an observer outside of it
// all knows.
type State struct {
	Table

	Workers []Worker
	// Ledger has an entry for each row that was ever committed, in the order of ids.
	Ledger []Entry
	// Plans are changes of key blocks that another transaction has decided on and not yet made.
	Plans []Plan
	// Victims are the rows that a purge has chosen and not yet removed, all of the status Purging.
	Victims []int
	Purging Status
}

// NewState is the empty table, and workers that have claimed nothing.
func NewState(workers int) State { return State{Workers: make([]Worker, workers)} }

// A Phase is what a worker is about.
type Phase uint8

// The phases of a worker.
const (
	Idle     Phase = iota
	Choosing       // it has read a window and decided
	Working        // it has a batch
	Asking         // it has sent a completion and does not know what became of it
)

// A Worker is a process's memory of one batch. A crash empties it.
type Worker struct {
	Phase   Phase
	Request Request
	// While Choosing: which rows to take, as of which version.
	Chosen  []int
	Version int
	Token   int // of its claim
	Batch   []Held
	// Late says that by its own clock the lease is over or lost: it sends nothing more.
	Late bool
	// Undone says that the database has lost its claim in a crash, without its knowing.
	Undone bool
}

// Held is one row of a worker's batch.
type Held struct {
	ID, Key, Attempts int
	Dead              bool
	Sent              bool // it was handed to the broker
	Decided           bool // Outcome is set
	Outcome           Outcome
}

// An Entry is what is known about a committed row without looking at the table.
type Entry struct {
	ID, Key   int
	Class     Class
	Delivered int  // how many copies consumers have seen
	Excused   bool // there is a reason for a second copy
	LetGo     bool // it was abandoned and its key could go on, so later rows may come before it
	Back      bool // an operator has brought it back
	Shared    bool // the last claim of it took other rows, too
	Gone      bool // it was purged, or removed as it was delivered
	// Passed are the earlier rows of its key that were scheduled when it was claimed last: it goes before
	// them.
	Passed []int
}

func (s *State) clone() State {
	next := *s
	next.Rows = slices.Clone(s.Rows)
	next.Blocks = slices.Clone(s.Blocks)
	next.Ledger = slices.Clone(s.Ledger)
	next.Workers = slices.Clone(s.Workers)
	for i := range next.Workers {
		next.Workers[i].Batch = slices.Clone(next.Workers[i].Batch)
	}
	next.Plans = slices.Clone(next.Plans)
	return next // Chosen, Victims and what stands in a plan are replaced as a whole, never changed
}

// Entry returns what the ledger knows about a row, nil for one that was never committed.
func (s *State) Entry(id int) *Entry {
	at, found := slices.BinarySearchFunc(s.Ledger, id, func(e Entry, id int) int { return e.ID - id })
	if !found {
		return nil
	}
	return &s.Ledger[at]
}

// holder returns the worker that has a token in memory, nil when none has.
func (s *State) holder(token int) *Worker {
	for i := range s.Workers {
		if token != 0 && s.Workers[i].Token == token {
			return &s.Workers[i]
		}
	}
	return nil
}

// Flying lists the rows of a batch that are with the broker.
func (w *Worker) Flying() (ids []int) {
	for i := range w.Batch {
		if w.Batch[i].Sent && !w.Batch[i].Decided {
			ids = append(ids, w.Batch[i].ID)
		}
	}
	return ids
}

// Undecided reports whether a batch has rows that were not sent yet.
func (w *Worker) Undecided() bool {
	return slices.ContainsFunc(w.Batch, func(h Held) bool { return !h.Sent && !h.Decided })
}

// Outcomes is what a worker's completion says: rows that were not sent go back.
func (w *Worker) Outcomes() []Outcome {
	outcomes := make([]Outcome, len(w.Batch))
	for i := range w.Batch {
		h := &w.Batch[i]
		outcomes[i] = h.Outcome
		if !h.Decided {
			outcomes[i] = h.release()
		}
	}
	return outcomes
}

// release gives a row back as it was.
func (h *Held) release() Outcome {
	if h.Attempts > 0 {
		return Outcome{ID: h.ID, Status: Failed}
	}
	return Outcome{ID: h.ID, Status: Pending}
}
