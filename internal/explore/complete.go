package explore

import "slices"

// An Outcome is what becomes of one claimed row.
type Outcome struct {
	ID int `json:",omitzero"`
	// Status is Published, Failed, Abandoned, or Pending and Failed without Spent for a row that
	// goes back as it was.
	Status Status `json:",omitzero"`
	Wait   bool   `json:",omitzero"` // there is a delay until it can be claimed again
	Spent  bool   `json:",omitzero"` // the attempt counts
}

// complete writes outcomes where the token still stands (mark_published.sql or delete_published.sql,
// mark_other.sql), and returns how many rows carry it no more, and which are gone. blocks makes the
// keys of abandoned rows wait for an operator.
func (p *Protocol) complete(t *Table, token int, outcomes []Outcome, blocks bool) (lost int, gone []int) {
	var abandoned []int // a removal moves the rows behind it
	for _, o := range outcomes {
		r := t.Row(o.ID)
		if !p.mayMark(r, token, o) {
			lost++
			continue
		}
		if p.DeletePublished && o.Status == Published {
			gone = append(gone, o.ID)
			t.Rows = slices.DeleteFunc(t.Rows, func(r Row) bool { return r.ID == o.ID })
			continue
		}
		r.Status, r.Token, r.Waits = o.Status, 0, o.Wait && !o.Status.Terminal()
		r.Attempts += btoi(o.Spent || o.Status == Published)
		if o.Status == Published {
			continue
		}
		r.Isolated = false
		if o.Spent {
			r.Crashes = 0 // it was sent and no process crashed with it
		}
		if o.Status == Abandoned {
			abandoned = append(abandoned, r.ID)
		}
	}
	if blocks {
		p.blockBehind(t, abandoned)
	}
	return lost, gone
}

func (p *Protocol) mayMark(r *Row, token int, o Outcome) bool {
	switch {
	case r == nil:
		return false
	case p.is(noFence), p.is(removesUnfenced) && o.Status == Published:
		return r.leased()
	case p.is(overwrites) && r.Status == Published:
		return o.Status != Published
	}
	return r.leased() && r.Token == token && !r.Deferred
}

// renew extends a lease that is still there, be it over, and returns how many rows that are. Where
// it was over, another transaction may have decided about the rows of its keys.
func (p *Protocol) renew(t *Table, token int) (kept int) {
	late := false
	for i := range t.Rows {
		if r := &t.Rows[i]; r.leased() && r.Token == token && !r.Deferred {
			late = late || !r.Waits
			r.Waits = true
			kept++
		}
	}
	if late && !p.is(renewsUnseen) {
		t.Version++
	}
	return kept
}

// Ready lists the shards that have work, as driver.Delivery does.
func (t *Table) Ready() []Class {
	var shards []Class
	for shard := range Classes {
		ready := false
		for i := range t.Rows {
			ready = ready || t.Rows[i].Class == shard && t.Rows[i].inShard() && !t.Rows[i].Waits
		}
		ready = ready || len(t.due(shard, 1)) > 0
		for _, g := range t.Blocks {
			ready = ready || g.Shard == shard && (g.Wake == Due || g.Wake == Back && t.done(g.Row))
		}
		if ready {
			shards = append(shards, shard)
		}
	}
	return shards
}

// done reports whether a block's row is finished, removed, or put off by a schedule.
func (t *Table) done(id int) bool {
	r := t.Row(id)
	return r == nil || !r.open() || r.Scheduled
}
