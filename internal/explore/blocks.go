package explore

import (
	"slices"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// A Plan is a change of key blocks that was decided and not yet made.
type Plan struct {
	Shard   Class
	Version int
	Lifts   bool // else it defers
	Deferral
	Lift driver.Lift
}

// A Deferral is which rows leave the way of claims, and which of them become blocks.
type Deferral struct {
	Blocks, Rows []int
	Unordered    bool
}

// planDefer decides what is deferred.
func (p *Protocol) planDefer(t *Table, c Request) Plan {
	reading := c
	reading.Unordered = false // what waits is read, too
	w := p.window(t, reading)
	blocks, rows := core.Defer(&w, c.Unordered)
	return Plan{Shard: c.Shard, Version: t.Version, Deferral: Deferral{Blocks: ints(blocks), Rows: ints(rows), Unordered: c.Unordered}}
}

// planLift decides which blocks of a shard are lifted, and which scheduled rows are admitted.
func (p *Protocol) planLift(t *Table, c Request) Plan {
	claim := driver.Claim{Limit: c.Limit}
	states := append(p.blockStates(t, c.Shard), t.due(c.Shard, claim.Admits())...)
	return Plan{Shard: c.Shard, Version: t.Version, Lifts: true, Lift: core.Lift(states, p.AdvanceRows)}
}

func (plan *Plan) nothing() bool {
	return len(plan.Rows) == 0 && core.Nothing(&plan.Lift)
}

// blockStates is what a store reads of the blocks of a shard that are due or back.
func (p *Protocol) blockStates(t *Table, shard Class) []driver.BlockState {
	var states []driver.BlockState
	done := 0
	for _, g := range t.Blocks {
		early := p.is(advancesEarly) && g.Wake == Rests
		if g.Shard != shard || g.Wake != Due && g.Wake != Back && !early {
			continue
		}
		r := t.Row(g.Row)
		b := driver.BlockState{
			ID: int64(g.Row), Key: keyText(g.Key), HasKey: g.Key != 0, Due: g.Wake == Due,
			Done: t.done(g.Row) || early, Waits: r != nil && r.rests(),
		}
		if b.Done && b.HasKey {
			if done++; done <= p.AdvanceBlocks {
				b.Followers = t.followers(g, p.AdvanceRows)
			}
		}
		states = append(states, b)
	}
	return states
}

// due lists the first scheduled rows of a shard whose time has come.
func (t *Table) due(shard Class, limit int) (rows []driver.BlockState) {
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Class == shard && r.due() && len(rows) < limit {
			rows = append(rows, driver.BlockState{ID: int64(r.ID), Scheduled: true})
		}
	}
	return rows
}

// followers lists the first deferred rows of a block's key.
func (t *Table) followers(g Block, limit int) (rows []driver.Ref) {
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.Key == g.Key && r.Class == g.Shard && r.Deferred && r.open() && r.ID != g.Row && len(rows) < limit {
			rows = append(rows, driver.Ref{ID: int64(r.ID)})
		}
	}
	return rows
}

// apply makes a planned change, unless another transaction has made one since, and returns how many
// rows were deferred.
func (p *Protocol) apply(t *Table, plan *Plan) (deferred int) {
	if plan.nothing() || plan.Version != t.Version && !p.is(changesStale) {
		return 0
	}
	if plan.Lifts {
		p.lift(t, &plan.Lift)
	} else {
		var ok bool
		if deferred, ok = p.deferRows(t, plan); !ok {
			return 0
		}
	}
	t.Version++
	return deferred
}

// deferRows takes rows out of the way of claims (defer.sql).
func (p *Protocol) deferRows(t *Table, plan *Plan) (deferred int, ok bool) {
	for _, id := range plan.Blocks {
		if r := t.Row(id); (r == nil || !r.inShard() || !r.rests()) && !p.is(blocksBlindly) {
			return 0, false
		}
	}
	for _, id := range plan.Blocks {
		if r := t.Row(id); r != nil && r.open() {
			rest(t, r, plan.Unordered)
		}
	}
	for _, id := range plan.Rows {
		if r := t.Row(id); r != nil && r.inShard() && (!r.leased() || p.is(defersLeased)) {
			r.Deferred = true
			deferred++
		}
	}
	return deferred, true
}

// rest makes a waiting row a block, or a block that is back in the way of claims wait again.
func rest(t *Table, r *Row, unordered bool) {
	key := r.Key
	if unordered {
		key = 0
	}
	if g := t.block(r.ID); g != nil {
		g.Wake = Rests
		if key != 0 {
			g.Key = key
		}
		return
	}
	t.addBlock(Block{Row: r.ID, Key: key, Shard: r.Class})
}

// lift brings deferred rows back into the way of claims (lift.sql, free.sql).
func (*Protocol) lift(t *Table, l *driver.Lift) {
	for i := range l.Rest {
		if r := t.Row(int(l.Rest[i].ID)); r != nil && r.open() && !r.leased() {
			restAgain(t, r)
		}
	}
	for i := range l.Wake {
		wake(t, int(l.Wake[i].ID))
	}
	for i := range l.Drop {
		t.removeBlock(int(l.Drop[i].ID))
	}
	for i := range l.Free {
		free(t, &l.Free[i])
	}
	for i := range l.Admit {
		if r := t.Row(int(l.Admit[i].ID)); r != nil && r.due() {
			r.Scheduled, r.Deferred = false, false
		}
	}
}

func restAgain(t *Table, r *Row) {
	r.Deferred = true
	if g := t.block(r.ID); g != nil {
		g.Wake = Rests
		if !r.Waits {
			g.Wake = Due
		}
	}
}

func wake(t *Table, id int) {
	if r := t.Row(id); r != nil {
		r.Deferred = false
	}
	if g := t.block(id); g != nil && g.Key == 0 {
		t.removeBlock(id)
	} else if g != nil {
		g.Wake = Back
	}
}

// free brings followers back, of which the last may be the next block.
func free(t *Table, f *driver.Freed) {
	for _, row := range f.Rows {
		r := t.Row(int(row.ID))
		if r == nil || !r.Deferred || !r.open() {
			continue
		}
		r.Deferred = false
		if g := t.block(r.ID); g != nil && g.Key == 0 {
			t.removeBlock(r.ID) // it may have waited alone, before order was switched on
		}
	}
	if block := int(f.Block.ID); f.Move && t.block(block) != nil {
		r := t.Row(int(f.Rows[len(f.Rows)-1].ID))
		t.removeBlock(block)
		t.addBlock(Block{Row: r.ID, Key: r.Key, Shard: r.Class, Wake: Back})
	}
}

// blockBehind makes the keys of abandoned rows wait for an operator (mark_other.sql). The first
// abandoned row of a key is its block, in place of one that it may have had.
func (p *Protocol) blockBehind(t *Table, abandoned []int) {
	slices.Sort(abandoned)
	for i, id := range abandoned {
		r := t.Row(id)
		if r.Key == 0 || slices.ContainsFunc(abandoned[:i], func(id int) bool { return r.sameKey(t.Row(id)) }) {
			continue
		}
		if g := t.blockOf(r.Key, r.Class); g != nil {
			t.removeBlock(g.Row)
		}
		t.addBlock(Block{Row: r.ID, Key: r.Key, Shard: r.Class, Wake: Operator})
		t.Version++
		for k := range t.Rows {
			// What stood behind the former block and before the new one has nothing to wait for any
			// more.
			if f := &t.Rows[k]; f.sameKey(r) && f.Deferred && f.ID < r.ID && !p.is(replacesBlock) {
				f.Deferred = false
			}
		}
	}
}
