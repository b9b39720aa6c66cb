package explore

import (
	"fmt"
	"slices"
)

// A Violation is a promise that was not kept. Name is the invariant's, as below.
type Violation struct{ Name, Text string }

func (v Violation) String() string { return v.Name + ": " + v.Text }

// The invariants. Their numbers are those of the list of faults that the project keeps;
// docs/protocol.md has them in words.
const (
	// NothingLost (G1): a committed row is in the table until it is finished and purged, or delivered
	// where delivered rows are not kept; and while
	// it is open there is something that brings it to a worker: its place in the shard, or a block
	// at or before it. That it gets to its end from there is tested by letting the world run on
	// without faults.
	NothingLost = "G1 nothing lost"
	// NoPhantom (G2): what consumers see was committed.
	NoPhantom = "G2 no phantom"
	// Confirmed (G3): a published row was accepted by the broker, and so was one that is removed instead.
	Confirmed = "G3 published means accepted"
	// FinalStates (G4): published and abandoned are left only by an operator's requeue or replay;
	// so a failure never overwrites published, and a purge removes nothing else.
	FinalStates = "G4 final states"
	// OneClaim (G5): a claim takes no row whose lease is not over; a row carries a token exactly
	// while it is processing.
	OneClaim = "G5 one claim per row"
	// Fence (G5): a completion changes only rows that carry its claim's token.
	Fence = "G5 only the holder marks"
	// OneHand (G5): a key of a class is with one worker at a time, of those whose lease stands by
	// their own clock. An operator who brings back an earlier row of a key that is claimed makes an
	// exception.
	OneHand = "G5 a key is in one hand"
	// Prefix (G6): a claim takes a key of a class from its first open row on, with no gap.
	Prefix = "G6 gap-free prefix"
	// Order (G6): when a row is delivered for the first time, every earlier row of its key and class
	// was delivered before, or was scheduled when the row was claimed, or was abandoned and let go: by
	// on_abandon: continue, or by an operator.
	Order = "G6 order of first deliveries"
	// LateSend (G6): what is handed to the broker is under a lease at this moment; so a stopped
	// owner delivers nothing after its lease is gone, but for the one send in flight.
	LateSend = "G6 nothing is sent without a lease"
	// Attempts (G7): no row is sent whose attempts are used up, and only what reached the broker's
	// judgement or killed its owner alone costs an attempt.
	Attempts = "G7 attempts"
	// Duplicates: a second copy needs a lease that ran out, an answer of the broker that was lost,
	// a claim that the database lost, or an operator.
	Duplicates = "duplicates have a reason"
	// Progress (G1): once faults end, every row is finished, but for those of keys that wait for an
	// operator.
	Progress = "G1 every row is finished in the end"
	// States: each open row is in the state that what happens next shows ([Protocol.CheckStates]), and
	// a row of a blocked key stays blocked until an operator acts.
	States = "each open row is in its state"
)

// Check tests the invariants on one transition and on the state that it leads to.
func (p *Protocol) Check(before *State, a *Action, reply *Reply, after *State) (violations []Violation) {
	report := func(name, format string, args ...any) {
		violations = append(violations, violation(name, format, args...))
	}
	checkRows(after, report)
	checkHands(after, report)
	checkDeliveries(before, after, report)
	for i := range before.Rows {
		old := &before.Rows[i]
		p.checkChange(old, after.Row(old.ID), before, a, report)
	}
	p.checkBlocked(before, after, a, report)
	switch a.Kind {
	case Claim, Take:
		checkClaim(before, a, reply, report)
	case Send:
		p.checkSend(before, a, reply, report)
	default:
	}
	return violations
}

func violation(name, format string, args ...any) Violation {
	return Violation{name, fmt.Sprintf(format, args...)}
}

type report = func(name, format string, args ...any)

// checkLedger compares what was committed and purged with what is there.
func checkLedger(s *State, report report) {
	for i := range s.Ledger {
		e := &s.Ledger[i]
		if there := s.Row(e.ID) != nil; there == e.Gone {
			report(NothingLost, "row %d was committed; that it is there is %t, that it was purged is %t", e.ID, there, e.Gone)
		}
	}
}

// checkRows looks at each row of a state.
func checkRows(s *State, report report) {
	checkLedger(s, report)
	for i := range s.Rows {
		r := &s.Rows[i]
		e := s.Entry(r.ID)
		switch {
		case e == nil:
			report(NoPhantom, "row %d was never committed", r.ID)
		case r.Deferred && !r.open():
			report(NothingLost, "row %d is deferred and %s", e.ID, r.Status)
		case r.Deferred && s.block(e.ID) == nil && !s.behindBlock(r):
			report(NothingLost, "row %d is deferred and no block brings it back", e.ID)
		case r.Deferred && r.leased():
			report(OneClaim, "row %d is deferred while it is claimed", e.ID)
		case r.Status == Published && e.Delivered == 0:
			report(Confirmed, "row %d is published and the broker never had it", e.ID)
		case r.leased() != (r.Token != 0):
			report(OneClaim, "row %d is %s with token %d", e.ID, r.Status, r.Token)
		}
	}
}

// checkHands looks for rows and keys that are with two workers.
func checkHands(s *State, report report) {
	for i := range s.Workers {
		for k := range i {
			a, b := &s.Workers[i], &s.Workers[k]
			if !a.holdsKeys() || !b.holdsKeys() {
				continue
			}
			for _, h := range a.Batch {
				sameClass := a.Request.Shard == b.Request.Shard
				shared := slices.ContainsFunc(b.Batch, func(o Held) bool { return o.ID == h.ID || sameClass && o.Key == h.Key && h.Key != 0 })
				if shared && !s.broughtBack(h.Key, a.Request.Shard) {
					report(OneHand, "row %d or its key %s is with workers %d and %d", h.ID, keyName(h.Key), k+1, i+1)
				}
			}
		}
	}
}

// holdsKeys reports whether a worker has a batch in order and its lease stands.
func (w *Worker) holdsKeys() bool {
	return w.Phase == Working && !w.Late && !w.Undone && !w.Request.Unordered
}

func (s *State) broughtBack(key int, class Class) bool {
	return key != 0 && slices.ContainsFunc(s.Ledger, func(e Entry) bool { return e.Key == key && e.Class == class && e.Back })
}

// checkDeliveries looks at what consumers saw in one step.
func checkDeliveries(before, after *State, report report) {
	for i := range after.Ledger {
		e := &after.Ledger[i]
		old := before.Entry(e.ID)
		switch {
		case old == nil || e.Delivered == old.Delivered:
			continue
		case old.Delivered > 0:
			if !e.Excused {
				report(Duplicates, "row %d was delivered twice", e.ID)
			}
			continue
		case e.Key == 0:
			continue
		}
		for k := range i {
			if earlier := &after.Ledger[k]; earlier.Key == e.Key && earlier.Class == e.Class && earlier.Delivered == 0 && !earlier.LetGo && !slices.Contains(e.Passed, earlier.ID) {
				report(Order, "row %d was delivered before row %d of its key", e.ID, earlier.ID)
			}
		}
	}
}

// checkSend looks at what a worker has handed to the broker.
func (p *Protocol) checkSend(before *State, a *Action, reply *Reply, report report) {
	w := &before.Workers[a.Worker]
	for _, h := range w.Batch {
		if !slices.Contains(reply.Rows, h.ID) {
			continue
		}
		if h.Attempts >= p.MaxAttempts {
			report(Attempts, "row %d is sent after %d attempts of %d", h.ID, h.Attempts, p.MaxAttempts)
		}
		r := before.Row(h.ID)
		if (r == nil || r.Token != w.Token || !r.Waits) && !w.Undone {
			report(LateSend, "row %d is sent by worker %d, whose lease is gone", h.ID, a.Worker+1)
		}
	}
}
