package explore

import (
	"slices"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// A Request asks for rows, as driver.Claim does, or for waiting rows to be deferred.
type Request struct {
	Shard     Class `json:",omitzero"`
	Limit     int   `json:",omitzero"`
	Window    int   `json:",omitzero"`
	Bytes     int   `json:",omitzero"` // 0 = no bound
	Unordered bool  `json:",omitzero"`
	Wake      bool  `json:",omitzero"`
	// Held is the row that the window shows as written by another transaction, which may never end;
	// 0 = none.
	Held int `json:",omitzero"`
}

func (c *Request) limits() core.Limits {
	return core.Limits{Rows: c.Limit, Bytes: int64(c.Bytes), Unordered: c.Unordered}
}

// window is what a store reads of the head of a shard.
func (p *Protocol) window(t *Table, c Request) driver.Window {
	rows := p.head(t, c)
	w := driver.Window{Version: int64(t.Version), Blocked: t.brings(c.Shard), Rows: make([]driver.Row, len(rows))}
	for i, r := range rows {
		row := &w.Rows[i]
		*row = driver.Row{
			Ref: driver.Ref{ID: int64(r.ID)}, Key: keyText(r.Key), Leased: r.leased(), Waits: r.Waits, Crashes: r.Crashes, Bytes: int64(r.Size), Held: r.ID == c.Held,
		}
		if g := p.blockOf(t, r); g != nil && !c.Unordered {
			row.HasBlock, row.Block = true, int64(g.Row)
		}
	}
	return w
}

// head lists the first open rows of the shard, held ones included: of each key it sees, it sees
// every earlier open row. Where order is off it lists those that are ready.
func (p *Protocol) head(t *Table, c Request) []*Row {
	switch {
	case c.Unordered:
		rows := slices.DeleteFunc(t.shard(c.Shard, len(t.Rows)), func(r *Row) bool { return r.Waits })
		return rows[:min(len(rows), c.Window, c.Limit)]
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

// blockOf returns the block that holds back a row's key, nil where none does.
func (p *Protocol) blockOf(t *Table, r *Row) *Block {
	if p.is(blocksEveryClass) {
		for class := range Classes {
			if g := t.blockOf(r.Key, class); g != nil {
				return g
			}
		}
	}
	return t.blockOf(r.Key, r.Class)
}

// keyText is a key as a store has it.
func keyText(key int) string {
	if key == 0 {
		return ""
	}
	return keyName(key)
}

// decide is the decision of a claim about a window, and what it replies.
func (p *Protocol) decide(t *Table, c Request, w *driver.Window, reply *Reply) (take []int) {
	d := core.Claim(w, c.limits())
	if simple(w, c) { // a store takes it without a decision
		d = core.Decision{Take: w.Refs()}
	}
	reply.Blocked, reply.Seen, reply.Cut, reply.Waiting = w.Blocked, len(w.Rows), d.Cut, d.Waiting
	if c.Unordered && len(w.Rows) < min(c.Window, c.Limit) { // rows that were read in vain
		reply.Waiting = 0
		for _, r := range t.shard(c.Shard, len(t.Rows)) {
			reply.Waiting += btoi(r.rests())
		}
	}
	return ints(d.Take)
}

// simple reports whether a store takes a window unchanged.
func simple(w *driver.Window, c Request) bool {
	return len(w.Rows) > 0 && core.Simple(w, c.limits())
}

// mayTake reports whether rows are still what a decision needs them to be.
func (p *Protocol) mayTake(t *Table, version int, ids []int) bool {
	if p.is(takesBlindly) {
		return true
	}
	if version != t.Version && !p.is(takesStale) {
		return false
	}
	for _, id := range ids {
		if r := t.Row(id); r == nil || !r.inShard() || r.Waits {
			return false
		}
	}
	return true
}

// take gives rows to a new claim.
func (p *Protocol) take(t *Table, ids []int) (token int) {
	t.Token++
	for _, id := range ids {
		r := t.Row(id)
		if r == nil {
			continue
		}
		if r.leased() {
			if r.Isolated || p.is(chargesAll) {
				r.Attempts++ // it was alone when its owner died
			}
			r.Crashes++
		}
		r.Status, r.Token, r.Waits, r.Isolated = Processing, t.Token, true, len(ids) == 1
	}
	return t.Token
}

func ints(rows []driver.Ref) []int {
	list := make([]int, len(rows))
	for i := range rows {
		list[i] = int(rows[i].ID)
	}
	return list
}
