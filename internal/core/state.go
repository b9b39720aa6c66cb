package core

import "github.com/gorm-fanout/fanout/outbox"

// A Time is when a row can go, compared with the database's clock.
type Time uint8

// Times.
const (
	Come  Time = iota // now, or there is none
	Ahead             // later
	Never             // infinity, or what a database has in its place
)

// An Entry is what stands among the key blocks: about a row itself, or about its key.
type Entry uint8

// Entries.
const (
	NoEntry  Entry = iota // none
	Resting               // its wake-up lies ahead
	Waking                // its wake-up has come: the next lift brings its row back
	Returned              // its row was brought back, and holds the followers until it is done
	Halted                // it has no wake-up, and waits for an operator
)

// Facts are what can be known of a row: what its database says of it, by its own clock, and what the
// caller knows of its broker. The zero value of each fact but Status holds back nothing.
type Facts struct {
	Status outbox.Status
	// Time is that of locked_until: while the row is in processing the end of its lease, in other
	// statuses that of its backoff.
	Time Time
	// Scheduled is true while available_at lies ahead. Such a row is nothing to its key, and its key is
	// nothing to it. Once its time has come it counts as one that is in the claim's way, although only
	// the next lift admits it.
	Scheduled bool
	// Deferred is true while the row is out of the claim's way, and Entry what brings it back: it is
	// the block of its key, or waits alone. Without an entry the block of its key brings it back.
	Deferred bool
	Entry    Entry

	// What there is of its ordering key in its shard beside the row; nothing where it has no key.
	//
	// Block is the key's block, unless the row is that block itself. BlockLater is true where it
	// stands after the row: then it holds back nothing, but brings back what is deferred without an
	// entry. BlockDone is true where the block's row is finished, or gone: once its wake-up has come,
	// the next lift removes the block and brings its followers back.
	Block                 Entry
	BlockLater, BlockDone bool
	// Earlier is true where an earlier row is open and in the claim's way, EarlierDeferred where an
	// earlier one is deferred, and Claimed where another row that is in the claim's way, be it a later
	// one, is under a lease that runs. A deferred row that waits alone, since order was off, goes
	// before later ones of its key only once it is back.
	Earlier, EarlierDeferred, Claimed bool

	// Unordered is true where the relay keeps no order. A block counts then only for a row that was
	// deferred behind it while it did.
	Unordered bool
	// Unclaimable is true in a shard that no relay claims from.
	Unclaimable bool
	// Unconfigured, Paused and Unavailable are the broker's.
	Unconfigured, Paused, Unavailable bool
}

// State says which state a row is in. It is empty for a row that is finished.
//
// The order is that of what has to happen first. A lease that runs comes before all: its worker is
// sending the row, whatever else holds. Without a relay nothing else matters, and nothing but a repair
// helps a row that is stranded. A scheduled row waits for its time, and for nothing else. A row of a blocked key can have an earlier open row before it as well,
// and still waits for the operator when that one is done. What goes first of a key comes before the
// row's own time, since nothing happens when that passes while the other row is open. A pause and a
// breaker hold back only what could be claimed otherwise.
func State(f *Facts) outbox.State {
	switch {
	case f.Status.Terminal():
		return ""
	case f.Status == outbox.StatusProcessing && f.Time == Ahead:
		return outbox.StateClaimed
	case f.Unconfigured:
		return outbox.StateUnconfigured
	case f.stranded():
		return outbox.StateStranded
	case f.Scheduled:
		return outbox.StateScheduled
	case f.BehindBlock() && f.Block == Halted:
		return outbox.StateBlocked
	case f.BehindBlock() || f.behindRow():
		return outbox.StateBehind
	case f.waits():
		return outbox.StateBackoff
	case f.Paused:
		return outbox.StatePaused
	case f.Unavailable:
		return outbox.StateUnavailable
	}
	return outbox.StateDue
}

// follower reports whether a row is deferred and waits for a block of its key.
func (f *Facts) follower() bool { return f.Deferred && f.Entry == NoEntry }

// BehindBlock reports whether a row waits for a key block.
func (f *Facts) BehindBlock() bool {
	return f.Block != NoEntry && !f.blockGoes() && (!f.BlockLater || f.follower()) && (!f.Unordered || f.follower())
}

// blockGoes reports whether the next lift removes the key's block.
func (f *Facts) blockGoes() bool {
	return f.BlockDone && (f.Block == Waking || f.Block == Returned)
}

// behindRow reports whether another row of the key goes first, be it one that the next lift brings back.
func (f *Facts) behindRow() bool {
	return !f.Unordered && (f.Earlier || f.Claimed || f.EarlierDeferred && f.blockGoes())
}

// waits reports whether a row waits for its own time.
func (f *Facts) waits() bool { return f.Time == Ahead || f.Deferred && f.Entry == Resting }

// stranded reports whether no rule can ever make a row due: no claim takes what has an unknown status,
// and no lift brings back a row whose block was brought back before and waits for no time any more. A
// scheduled row is admitted whatever else holds.
func (f *Facts) stranded() bool {
	lost := !f.Scheduled && (f.follower() && f.Block == NoEntry || f.Deferred && (f.Entry == Halted || f.Entry == Returned && f.Time == Come))
	return lost || f.Time == Never || f.Unclaimable || !f.Status.Valid()
}
