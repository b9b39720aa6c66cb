package protocol

import "slices"

// park takes what waits at the head of a lane out of the claim's way (park.sql) and returns how many rows that are.
func (p *Protocol) park(t *Table, c Request) (parked int) {
	gated := len(t.Gates) > 0
	window := t.lane(c.Lane, c.Window)
	// first[i] is the first row of the key of window[i] that must wait and can be the key's gate.
	gate, first := make([]*Gate, len(window)), make([]*Row, len(window))
	for i, r := range window {
		if g := t.gateOf(r.Key); g != nil && gated && !c.Unordered {
			copied := *g // gates that are made below do not count
			gate[i] = &copied
		}
	}
	for i, r := range window {
		for k, other := range window {
			same := k == i || !c.Unordered && r.Key != 0 && other.Key == r.Key
			if same && first[i] == nil && !other.leased() && other.Waits && (gate[k] == nil || gate[k].Row == other.ID) {
				first[i] = other
			}
		}
	}
	for i, r := range window {
		if first[i] == r {
			p.rest(t, r, c.Unordered)
		}
	}
	for i, r := range window {
		behind := gate[i] != nil && r.ID > gate[i].Row || first[i] != nil && r.ID >= first[i].ID
		if behind && (!r.leased() || p.is(parksLeased)) {
			r.Parked = true
			parked++
		}
	}
	return parked
}

// rest makes a waiting row a gate, or a gate that is back in the claim's way wait again.
func (*Protocol) rest(t *Table, r *Row, unordered bool) {
	if g := t.gate(r.ID); g != nil {
		g.Wake = Rests
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
		case !r.leased() && r.Waits:
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
