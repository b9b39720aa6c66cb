package protocol

import "slices"

// defer takes what waits at the head of a shard out of the claim's way (defer.sql) and returns how many rows that are.
func (p *Protocol) deferRows(t *Table, c Request) (deferred int) {
	window := t.shard(c.Shard, c.Window)
	// The blocks as they are before this: blockOf of each key, and the row that is to be its block.
	blocks, first := make([]int, len(window)), make([]*Row, len(window))
	for i, r := range window {
		if g := t.blockOf(r.Key); g != nil && !c.Unordered {
			blocks[i] = g.Row
		}
	}
	for i, r := range window {
		first[i] = firstToRest(window, blocks, i, c.Unordered || r.Key == 0)
	}
	for i, r := range window {
		if first[i] == r {
			p.rest(t, r, c.Unordered)
		}
	}
	for i, r := range window {
		behind := blocks[i] != 0 && r.ID > blocks[i] || first[i] != nil && r.ID >= first[i].ID
		if behind && (!r.leased() || p.is(defersLeased)) {
			r.Deferred = true
			deferred++
		}
	}
	return deferred
}

// firstToRest returns the first row of a key that must wait, if it can be the key's block; of a row that waits alone, itself.
func firstToRest(window []*Row, blocks []int, of int, alone bool) *Row {
	for i, r := range window {
		mine := i == of || !alone && r.Key == window[of].Key
		if mine && r.rests() && (blocks[i] == 0 || blocks[i] == r.ID) {
			return r
		}
	}
	return nil
}

// rest makes a waiting row a block, or a block that is back in the claim's way wait again.
func (*Protocol) rest(t *Table, r *Row, unordered bool) {
	if g := t.block(r.ID); g != nil {
		g.Wake = Rests
		if !unordered {
			g.Key = r.Key
		}
		return
	}
	g := Block{Row: r.ID, Key: r.Key, Shard: r.Class}
	if unordered {
		g.Key = 0
	}
	t.addBlock(g)
}

// wake brings back blocks whose time has come (wake.sql).
func (p *Protocol) wake(t *Table, shard Class) {
	limit := p.WakeLimit
	for _, g := range slices.Clone(t.Blocks) {
		if g.Shard != shard || g.Wake != Due || limit == 0 {
			continue
		}
		limit--
		if r := t.Row(g.Row); r != nil {
			r.Deferred = false
		}
		if g.Key == 0 {
			t.removeBlock(g.Row)
		} else {
			t.block(g.Row).Wake = Back
		}
	}
}

// advance moves on the blocks that are back in the claim's way (advance.sql). One that is done lets a bounded number of
// followers through, of which the last is the next block; one that must wait again leaves.
func (p *Protocol) advance(t *Table, shard Class) {
	blocks := p.AdvanceBlocks
	for _, g := range slices.Clone(t.Blocks) {
		early := p.is(advancesEarly) && g.Wake == Rests
		if g.Shard != shard || g.Wake != Back && !early {
			continue
		}
		r := t.Row(g.Row)
		switch {
		case r == nil || !r.open() || early:
			if blocks > 0 {
				blocks--
				p.letThrough(t, g)
			}
		case r.rests():
			r.Deferred = true
			t.block(g.Row).Wake = Rests
		}
	}
}

func (p *Protocol) letThrough(t *Table, g Block) {
	t.removeBlock(g.Row)
	limit := p.AdvanceRows
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.Key != g.Key || !r.Deferred || !r.open() || r.ID == g.Row {
			continue
		}
		r.Deferred = false
		t.removeBlock(r.ID) // it may have waited alone, before order was switched on
		limit--
		if limit == 0 {
			t.addBlock(Block{Row: r.ID, Key: r.Key, Shard: r.Class, Wake: Back})
			return
		}
	}
}

// blockBehind makes the keys of abandoned rows wait for an operator (mark_other.sql). The first abandoned row of a key is
// its block, in place of one that it may have had.
func (p *Protocol) blockBehind(t *Table, abandoned []*Row) {
	slices.SortFunc(abandoned, func(a, b *Row) int { return a.ID - b.ID })
	for i, r := range abandoned {
		sameKey := func(other *Row) bool { return other.Key == r.Key }
		if r.Key == 0 || slices.ContainsFunc(abandoned[:i], sameKey) {
			continue
		}
		if g := t.blockOf(r.Key); g != nil {
			t.removeBlock(g.Row)
		}
		t.addBlock(Block{Row: r.ID, Key: r.Key, Shard: r.Class, Wake: Operator})
		for k := range t.Rows {
			// What stood behind the former block and before the new one has nothing to wait for any more.
			if f := &t.Rows[k]; f.Key == r.Key && f.Deferred && f.ID < r.ID && !p.is(replacesBlock) {
				f.Deferred = false
			}
		}
	}
}
