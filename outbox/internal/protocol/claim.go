package protocol

import "slices"

// A Request asks for rows, as driver.Claim does, or for waiting rows to be deferred.
type Request struct {
	Shard     Class `json:",omitzero"`
	Limit     int   `json:",omitzero"`
	Window    int   `json:",omitzero"`
	Bytes     int   `json:",omitzero"` // 0 = no bound
	Unordered bool  `json:",omitzero"`
	Wake      bool  `json:",omitzero"`
}

// judged is one row of a claim's window, with what the rows of its key say about it (claim_ordered.sql).
type judged struct {
	row             *Row
	clear           bool // it and all rows of its key before it are ready, and nothing outside of the window stands before it
	inHand          bool // somebody else has a row of its key
	waits           bool // it or a row of its key before it waits for a time or behind a block
	lowest, highest int  // suspicion of the rows of its key so far
}

// choose says which rows a claim takes.
func (p *Protocol) choose(t *Table, c Request, reply *Reply) []*Row {
	reply.Blocked = len(t.Blocks) > 0
	if c.Unordered {
		return p.chooseUnordered(t, c, reply)
	}
	window := p.judge(t, c, reply)
	reply.Seen = len(window)
	var free []judged
	for _, j := range window {
		reply.Waiting += btoi(j.waits)
		if j.clear && !j.inHand {
			free = append(free, j)
		}
	}
	if len(free) == 0 {
		return nil
	}
	// Rows whose lease ran out are claimed apart from the others, and fewer at a time after each crash.
	suspicion := free[0].lowest
	chosen := make([]*Row, 0, len(free))
	for _, j := range free {
		if j.lowest == suspicion && j.highest == suspicion {
			chosen = append(chosen, j.row)
		}
	}
	return c.cut(chosen[:min(len(chosen), isolate(c.Limit, suspicion))], reply)
}

// cut keeps the first rows that stay within the bytes, and one in any case.
func (c *Request) cut(chosen []*Row, reply *Reply) []*Row {
	total := 0
	for i, r := range chosen {
		if total += r.Size; i > 0 && c.Bytes > 0 && total > c.Bytes {
			reply.Cut = true
			return chosen[:i]
		}
	}
	return chosen
}

// isolate halves a limit for each crash, down to one.
func isolate(limit, suspicion int) int { return max(1, limit>>min(suspicion, 30)) }

// judge looks at the window of a claim.
func (p *Protocol) judge(t *Table, c Request, reply *Reply) []judged {
	rows := p.window(t, c)
	elsewhere := p.elsewhere(t, c.Shard, reply)
	window := make([]judged, len(rows))
	for i, r := range rows {
		held, rests := elsewhere(r)
		lost := p.is(recoversNothing) && r.leased()
		window[i] = judged{
			row: r, lowest: r.suspicion(), highest: r.suspicion(), waits: rests || r.rests(), clear: !r.Waits && !held && !lost,
		}
		for k, other := range rows {
			if other.Key != 0 && other.Key == r.Key {
				p.join(&window[i], &window[k], other, k < i)
			}
		}
	}
	return window
}

// join lets a row's verdict depend on another row of its key, and on that one's verdict where it stands before.
func (p *Protocol) join(j, of *judged, other *Row, before bool) {
	j.inHand = j.inHand || other.leased() && other.Waits && !p.is(ignoresInHand)
	if before && !p.is(leavesGaps) {
		j.clear = j.clear && of.clear
		j.waits = j.waits || of.waits
		j.lowest, j.highest = min(j.lowest, of.lowest), max(j.highest, of.highest)
	}
}

// window lists the first open rows of the shard, held ones included: of each key it sees, it sees every earlier open row.
func (p *Protocol) window(t *Table, c Request) []*Row {
	switch {
	case p.is(byTime):
		rows := t.shard(c.Shard, len(t.Rows))
		slices.SortStableFunc(rows, func(a, b *Row) int { return a.At - b.At })
		return rows[:min(len(rows), c.Window)]
	case p.is(ignoresHeld):
		rows := t.shard(c.Shard, len(t.Rows))
		rows = slices.DeleteFunc(rows, func(r *Row) bool { return r.leased() && r.Waits })
		return rows[:min(len(rows), c.Window)]
	}
	return t.shard(c.Shard, c.Window)
}

// elsewhere returns a function about the earlier rows of a row's key that the window does not show, being behind a block or in
// the shard of another class: held says that there are some, rests that the row can be deferred until they have come.
func (p *Protocol) elsewhere(t *Table, shard Class, reply *Reply) func(*Row) (held, rests bool) {
	mixed := shard == Normal && len(t.shard(Backfill, 1)) > 0
	ahead := t.ahead(shard, reply)
	return func(r *Row) (held, rests bool) {
		if r.Key == 0 {
			return false, false
		}
		blocked := t.behindBlock(r) && !p.is(ignoresBlocks)
		if p.is(ignoresClasses) {
			return blocked, blocked
		}
		var low *Row
		if mixed {
			low = t.firstLow(r)
		}
		lowRests := low != nil && low.rests()
		reply.AheadWaits = reply.AheadWaits || lowRests
		return blocked || low != nil || ahead != nil && r.ID > ahead.ID, blocked || lowRests
	}
}

// ahead returns the first open row of the normal shard, for the backfill; nil for the others.
func (t *Table) ahead(shard Class, reply *Reply) *Row {
	first := t.shard(Normal, 1)
	if shard != Backfill || len(first) == 0 {
		return nil
	}
	low := t.firstLow(first[0])
	reply.AheadWaits = first[0].rests() || t.behindBlock(first[0]) || low != nil && low.rests()
	return first[0]
}

// firstLow returns the first open row of low priority before a row of its key, deferred or not.
func (t *Table) firstLow(r *Row) *Row {
	for i := range t.Rows {
		if low := &t.Rows[i]; r.Key != 0 && low.Key == r.Key && low.ID < r.ID && low.Class == Backfill && low.open() {
			return low
		}
	}
	return nil
}

// chooseUnordered is the choice where order is off (claim_unordered.sql).
func (p *Protocol) chooseUnordered(t *Table, c Request, reply *Reply) []*Row {
	limit := min(c.Window, c.Limit)
	var free []*Row
	waiting := 0
	for _, r := range t.shard(c.Shard, len(t.Rows)) {
		if !r.Waits && len(free) < limit {
			free = append(free, r)
		}
		waiting += btoi(r.rests())
	}
	reply.Seen = len(free)
	if len(free) < limit {
		reply.Waiting = waiting
	}
	if len(free) == 0 {
		return nil
	}
	suspicion := free[0].suspicion()
	chosen := slices.DeleteFunc(free, func(r *Row) bool { return r.suspicion() != suspicion })
	return c.cut(chosen[:min(len(chosen), isolate(c.Limit, suspicion))], reply)
}

// take gives the chosen rows to a new claim.
func (p *Protocol) take(t *Table, chosen []*Row) (token int) {
	t.Token++
	for _, r := range chosen {
		if r.leased() {
			if r.Isolated || p.is(chargesAll) {
				r.Attempts++ // it was alone when its owner died
			}
			r.Crashes++
		}
		r.Status, r.Token, r.Waits, r.Isolated = Processing, t.Token, true, len(chosen) == 1
	}
	return t.Token
}
