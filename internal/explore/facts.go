package explore

import (
	"slices"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/outbox"
)

// Facts are what the table says of a row, for [core.State].
func (p *Protocol) Facts(t *Table, r *Row) core.Facts {
	f := core.Facts{
		Status: outbox.Status(r.Status.String()), Scheduled: r.Scheduled && r.Waits, Deferred: r.Deferred && !r.Scheduled && !p.is(countsDeferred),
	}
	if !r.Scheduled {
		f.Entry = t.block(r.ID).entry()
	}
	p.keyFacts(t, r, &f)
	if r.Waits && !r.Scheduled || r.leased() && p.is(leasesNeverEnd) {
		f.Time = core.Ahead
	}
	return f
}

// inHand reports whether a row is under a lease that runs.
func (r *Row) inHand() bool { return r.leased() && r.Waits }

// StateOf is the state of a row.
func (p *Protocol) StateOf(t *Table, r *Row) outbox.State {
	return p.stateWith(t, r, false)
}

func (p *Protocol) state(f *core.Facts) outbox.State {
	if p.mistake != nil {
		return p.mistake(f)
	}
	return core.State(f)
}

// entry is what a block stands for.
func (g *Block) entry() core.Entry {
	if g == nil {
		return core.NoEntry
	}
	return map[Wake]core.Entry{Rests: core.Resting, Due: core.Waking, Back: core.Returned, Operator: core.Halted}[g.Wake]
}

// keyFacts are those of a row's key.
func (p *Protocol) keyFacts(t *Table, r *Row, f *core.Facts) {
	g := p.blockOf(t, r)
	if p.is(blocksOfAnyClass) {
		g = t.blockOfAnyClass(r)
	}
	if g != nil && g.Row != r.ID {
		f.Block, f.BlockLater, f.BlockDone = g.entry(), g.Row > r.ID, t.done(g.Row) && !p.is(blocksWhenDone)
	}
	for i := range t.Rows {
		if other := &t.Rows[i]; other.ID != r.ID && r.sameKey(other) && other.open() {
			p.otherOfKey(r, other, f)
		}
	}
}

// otherOfKey notes what another open row of a row's key means for it.
func (p *Protocol) otherOfKey(r, other *Row, f *core.Facts) {
	earlier := other.ID < r.ID
	if other.Scheduled {
		return
	}
	if other.Deferred {
		f.EarlierDeferred = f.EarlierDeferred || earlier && !p.is(passesDeferred)
		return
	}
	f.Earlier = f.Earlier || earlier
	f.Claimed = f.Claimed || other.inHand() && !p.is(overlooksClaims)
}

// blockOfAnyClass is the first block of a row's key, whatever its shard.
func (t *Table) blockOfAnyClass(r *Row) *Block {
	at := slices.IndexFunc(t.Blocks, func(g Block) bool { return r.Key != 0 && g.Key == r.Key })
	if at < 0 {
		return nil
	}
	return &t.Blocks[at]
}

// CheckStates tests that each open row of a table that the protocol can reach is in the state that the
// protocol itself shows: see CheckDue; and that what waits, waits for what its state says.
func (p *Protocol) CheckStates(t *Table) []Violation {
	violations := p.CheckDue(t)
	for _, unordered := range []bool{false, true} {
		for i := range t.Rows {
			r := &t.Rows[i]
			if !r.open() {
				continue
			}
			p.checkWaiting(t, r, p.stateWith(t, r, unordered), unordered, func(format string, args ...any) {
				violations = append(violations, violation(States, format, args...))
			})
		}
	}
	return violations
}

// CheckDue tests of any table, whatever stands in it, that what is due is what a claim takes first of
// its key once it has lifted what it can, and nothing else; with order and without. What the claim takes
// beside that is behind one of these rows. Limits and crash isolation, which say how much of this one
// claim takes, are left out.
func (p *Protocol) CheckDue(t *Table) (violations []Violation) {
	report := func(format string, args ...any) {
		violations = append(violations, violation(States, format, args...))
	}
	admitted := p.admitted(t) // a scheduled row whose time has come is an ordinary one from its next lift on
	t = &admitted
	lifted := p.lifted(t)
	for _, unordered := range []bool{false, true} {
		taken := p.takenFrom(&lifted, unordered)
		for i := range t.Rows {
			r := &t.Rows[i]
			if !r.open() {
				continue
			}
			state, place := p.stateWith(t, r, unordered), slices.Index(taken, r.ID)
			first := place >= 0 && (unordered || !slices.ContainsFunc(taken[:place], func(id int) bool { return r.sameKey(t.Row(id)) }))
			switch {
			case (state == outbox.StateDue) != first:
				report("row %d is %s; that a claim takes it first is %t", r.ID, state, first)
			case place >= 0 && !first && state != outbox.StateBehind:
				report("row %d is %s, and is claimed behind an earlier row of its key", r.ID, state)
			case (state == outbox.StateClaimed) != r.inHand():
				report("row %d is %s; that a lease runs is %t", r.ID, state, r.inHand())
			}
		}
	}
	return violations
}

// stateWith is the state of a row whose relay keeps order, or does not.
func (p *Protocol) stateWith(t *Table, r *Row, unordered bool) outbox.State {
	f := p.Facts(t, r)
	f.Unordered = unordered
	return p.state(&f)
}

// checkWaiting looks at what a row waits for.
func (p *Protocol) checkWaiting(t *Table, r *Row, state outbox.State, unordered bool, report func(format string, args ...any)) {
	switch state {
	case outbox.StateStranded, outbox.StatePaused, outbox.StateUnavailable, outbox.StateUnconfigured:
		report("row %d is %s, and nothing of this world makes it that", r.ID, state)
	case outbox.StateBackoff:
		later := cloned(t)
		if _, err := (*Protocol)(nil).stepPass(&later, &Action{ID: r.ID}); err != nil {
			report("row %d is %s: %v", r.ID, state, err)
			return
		}
		if state := p.stateWith(&later.Table, later.Row(r.ID), unordered); state != outbox.StateDue {
			report("row %d waits for a time, and when that comes it is %s", r.ID, state)
		}
	case outbox.StateBlocked, outbox.StateBehind:
		g := t.blockOf(r.Key, r.Class)
		waits := g != nil && g.Wake == Operator && (g.Row < r.ID || r.Deferred && t.block(r.ID) == nil) && (!unordered || r.Deferred)
		if waits != (state == outbox.StateBlocked) {
			report("row %d is %s; that its key waits for an operator is %t", r.ID, state, waits)
		}
	default:
	}
}

// admitted is a table without scheduled rows whose time has come.
func (*Protocol) admitted(t *Table) Table {
	s := cloned(t)
	for i := range s.Rows {
		if r := &s.Rows[i]; r.due() {
			r.Scheduled, r.Deferred = false, false
		}
	}
	return s.Table
}

// lifted is a table in which everything was brought back that can be.
func (p *Protocol) lifted(t *Table) Table {
	s, unbounded := cloned(t), *p
	unbounded.AdvanceBlocks, unbounded.AdvanceRows = len(t.Blocks)+1, len(t.Rows)+1
	for class := range Classes {
		if plan := unbounded.planLift(&s.Table, Request{Shard: class, Limit: 2 * len(t.Rows)}); !plan.nothing() {
			unbounded.apply(&s.Table, &plan)
		}
	}
	return s.Table
}

func cloned(t *Table) State {
	s := State{Table: *t}
	return s.clone()
}

// takenFrom is what claims without limits take, of all shards.
func (p *Protocol) takenFrom(t *Table, unordered bool) (taken []int) {
	for class := range Classes {
		w := p.window(t, Request{Shard: class, Limit: len(t.Rows), Window: len(t.Rows), Unordered: unordered})
		w.Rows = slices.Clone(w.Rows)
		for i := range w.Rows {
			row := &w.Rows[i]
			row.Crashes, row.Leased = 0, row.Leased && row.Waits
		}
		if len(w.Rows) > 0 {
			taken = append(taken, ints(core.Claim(&w, core.Limits{Rows: len(w.Rows), Unordered: unordered}).Take)...)
		}
	}
	return taken
}

// checkBlocked: what waits for an operator waits until one acts.
func (p *Protocol) checkBlocked(before, after *State, a *Action, report report) {
	switch a.Kind {
	case Requeue, Replay, Drop, UnblockKey:
		return
	default:
	}
	if !slices.ContainsFunc(before.Blocks, func(g Block) bool { return g.Wake == Operator }) {
		return
	}
	for i := range before.Rows {
		old := &before.Rows[i]
		now := after.Row(old.ID)
		if now == nil || !now.open() || p.StateOf(&before.Table, old) != outbox.StateBlocked {
			continue
		}
		if state := p.StateOf(&after.Table, now); state != outbox.StateBlocked {
			report(States, "row %d was blocked and is %s, and no operator acted", old.ID, state)
		}
	}
}
