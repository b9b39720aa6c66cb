package protocol

import "slices"

// park takes what waits at the head of a lane out of the claim's way (park.sql) and returns how many rows that are.
func (p *Protocol) park(t *Table, c Request) (parked int) {
	window := t.lane(c.Lane, c.Window)
	// The gates as they are before this: gateOf of each key, and the row that is to be its gate.
	gates, first := make([]int, len(window)), make([]*Row, len(window))
	for i, r := range window {
		if g := t.gateOf(r.Key); g != nil && !c.Unordered {
			gates[i] = g.Row
		}
	}
	for i, r := range window {
		first[i] = firstToRest(window, gates, i, c.Unordered || r.Key == 0)
	}
	for i, r := range window {
		if first[i] == r {
			p.rest(t, r, c.Unordered)
		}
	}
	for i, r := range window {
		behind := gates[i] != 0 && r.ID > gates[i] || first[i] != nil && r.ID >= first[i].ID
		if behind && (!r.leased() || p.is(parksLeased)) {
			r.Parked = true
			parked++
		}
	}
	return parked
}

// firstToRest returns the first row of a key that must wait, if it can be the key's gate; of a row that waits alone, itself.
func firstToRest(window []*Row, gates []int, of int, alone bool) *Row {
	for i, r := range window {
		mine := i == of || !alone && r.Key == window[of].Key
		if mine && r.rests() && (gates[i] == 0 || gates[i] == r.ID) {
			return r
		}
	}
	return nil
}

// rest makes a waiting row a gate, or a gate that is back in the claim's way wait again.
func (*Protocol) rest(t *Table, r *Row, unordered bool) {
	if g := t.gate(r.ID); g != nil {
		g.Wake = Rests
		if !unordered {
			g.Key = r.Key
		}
		return
	}
	g := Gate{Row: r.ID, Key: r.Key, Lane: r.Class}
	if unordered {
		g.Key = 0
	}
	t.addGate(g)
}

// wake brings back gates whose time has come (wake.sql).
func (p *Protocol) wake(t *Table, lane Class) {
	limit := p.WakeLimit
	for _, g := range slices.Clone(t.Gates) {
		if g.Lane != lane || g.Wake != Due || limit == 0 {
			continue
		}
		limit--
		if r := t.Row(g.Row); r != nil {
			r.Parked = false
		}
		if g.Key == 0 {
			t.removeGate(g.Row)
		} else {
			t.gate(g.Row).Wake = Back
		}
	}
}

// advance moves on the gates that are back in the claim's way (advance.sql). One that is done lets a bounded number of
// followers through, of which the last is the next gate; one that must wait again leaves.
func (p *Protocol) advance(t *Table, lane Class) {
	gates := p.AdvanceGates
	for _, g := range slices.Clone(t.Gates) {
		early := p.is(advancesEarly) && g.Wake == Rests
		if g.Lane != lane || g.Wake != Back && !early {
			continue
		}
		r := t.Row(g.Row)
		switch {
		case r == nil || !r.open() || early:
			if gates > 0 {
				gates--
				p.letThrough(t, g)
			}
		case r.rests():
			r.Parked = true
			t.gate(g.Row).Wake = Rests
		}
	}
}

func (p *Protocol) letThrough(t *Table, g Gate) {
	t.removeGate(g.Row)
	limit := p.AdvanceRows
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.Key != g.Key || !r.Parked || !r.open() || r.ID == g.Row {
			continue
		}
		r.Parked = false
		t.removeGate(r.ID) // it may have waited alone, before order was switched on
		limit--
		if limit == 0 {
			t.addGate(Gate{Row: r.ID, Key: r.Key, Lane: r.Class, Wake: Back})
			return
		}
	}
}

// parkBehind makes the keys of abandoned rows wait for an operator (mark_other.sql). The first abandoned row of a key is
// its gate, in place of one that it may have had.
func (p *Protocol) parkBehind(t *Table, abandoned []*Row) {
	slices.SortFunc(abandoned, func(a, b *Row) int { return a.ID - b.ID })
	for i, r := range abandoned {
		sameKey := func(other *Row) bool { return other.Key == r.Key }
		if r.Key == 0 || slices.ContainsFunc(abandoned[:i], sameKey) {
			continue
		}
		if g := t.gateOf(r.Key); g != nil {
			t.removeGate(g.Row)
		}
		t.addGate(Gate{Row: r.ID, Key: r.Key, Lane: r.Class, Wake: Operator})
		for k := range t.Rows {
			// What stood behind the former gate and before the new one has nothing to wait for any more.
			if f := &t.Rows[k]; f.Key == r.Key && f.Parked && f.ID < r.ID && !p.is(replacesGate) {
				f.Parked = false
			}
		}
	}
}
