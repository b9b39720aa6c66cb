package core

import (
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Limits bound a claim.
type Limits struct {
	// Rows is the most rows to take, at least 1.
	Rows int
	// Bytes is the most that their payloads and headers may have together; 0 = no bound. The first row
	// is taken whatever it has.
	Bytes int64
	// PerKey is the most rows to take of one ordering key; 0 = no bound.
	PerKey int
	// Unordered switches ordering keys off.
	Unordered bool
}

// A Decision about a window.
type Decision struct {
	// Take is the rows to claim, in ascending order of their ids. Of several rows with one id it has
	// one, so that the outcomes of a claim say by the id which row they are about.
	Take []driver.Ref
	// Waiting is how many rows wait for a time, or behind one that does.
	Waiting int
	// Cut is true when the bytes kept rows back.
	Cut bool
}

// standing is what the rows of a key say about one of them.
type standing struct {
	clear   bool // it and all rows of its key before it can go
	waits   bool // it or one of these waits for a time
	claimed bool // a row of its key, earlier or later, is under a lease
	// Suspicion is how many crashes a row may have caused: the least and the most of the rows so
	// far.
	lowest, highest int
}

// Claim decides which rows of a window are claimed: of each key a prefix without a gap, nothing of
// a key that another process has claimed, and rows whose lease ran out apart from the others.
func Claim(w *driver.Window, limits Limits) Decision {
	var d Decision
	standings := judge(w, limits.Unordered)
	first := -1
	for i := range standings {
		v := &standings[i]
		if v.waits {
			d.Waiting++
		}
		if first < 0 && v.free() {
			first = i
		}
	}
	if first >= 0 {
		d.take(w.Rows[first:], standings[first:], limits)
	}
	return d
}

// take chooses among rows of which the first can go. Rows that may have crashed a process are
// claimed apart, and fewer at a time after each crash, until the row that crashes it is claimed
// alone.
func (d *Decision) take(rows []driver.Row, standings []standing, limits Limits) {
	suspicion := standings[0].lowest
	limit := max(1, limits.Rows>>min(suspicion, 30))
	bytes := int64(0)
	d.Take = make([]driver.Ref, 0, min(limit, len(rows)))
	behind := map[string]bool{} // keys of which a row stays back, since its id is taken, or the key has its share
	taken := map[string]int{}
	for i := range rows {
		v := &standings[i]
		if !v.free() || v.lowest != suspicion || v.highest != suspicion {
			continue
		}
		if n := len(d.Take); n > 0 && d.Take[n-1].ID == rows[i].ID {
			behind[rows[i].Key] = rows[i].Key != ""
			continue
		}
		if behind[rows[i].Key] {
			continue
		}
		if bytes += rows[i].Bytes; limits.Bytes > 0 && bytes > limits.Bytes && len(d.Take) > 0 {
			d.Cut = true // a prefix of a prefix has no gap either
			return
		}
		if d.Take = append(d.Take, rows[i].Ref); len(d.Take) == limit {
			return
		}
		if key := rows[i].Key; limits.PerKey > 0 && key != "" && !limits.Unordered {
			taken[key]++
			behind[key] = taken[key] == limits.PerKey
		}
	}
}

func (v *standing) free() bool { return v.clear && !v.claimed }

// join lets a row's standing depend on that of the row of its key before it.
func (v *standing) join(before *standing) {
	v.clear, v.waits = v.clear && before.clear, v.waits || before.waits
	v.lowest, v.highest = min(v.lowest, before.lowest), max(v.highest, before.highest)
}

// judge looks at each row of a window and, where order is on, at the rows of its key.
func judge(w *driver.Window, unordered bool) []standing {
	standings := make([]standing, len(w.Rows))
	for i := range w.Rows {
		row, suspicion := &w.Rows[i], Suspicion(&w.Rows[i])
		standings[i] = standing{
			clear: !row.Waits, waits: row.Waits && !row.Leased, claimed: row.Leased && row.Waits, lowest: suspicion, highest: suspicion,
		}
		if row.Held {
			standings[i].clear = false
		}
	}
	if !unordered {
		judgeKeys(w, standings)
	}
	return standings
}

// judgeKeys lets the standings of rows with a key depend on the other rows of the key in the window,
// and on its block.
func judgeKeys(w *driver.Window, standings []standing) {
	last := make(map[string]int, len(w.Rows)) // by key: the row of it that was seen last
	claimed := map[string]bool{}
	for i := range w.Rows {
		row, v := &w.Rows[i], &standings[i]
		if row.Key == "" {
			continue
		}
		behind := behindBlock(row)
		v.clear, v.waits = v.clear && !behind, v.waits || behind
		if at, ok := last[row.Key]; ok {
			v.join(&standings[at])
		}
		last[row.Key] = i
		if v.claimed {
			claimed[row.Key] = true
		}
	}
	for i := range standings {
		standings[i].claimed = standings[i].claimed || claimed[w.Rows[i].Key]
	}
}

// behindBlock reports whether a block stands before a row of its key.
func behindBlock(row *driver.Row) bool { return row.HasBlock && row.Block < row.ID }

// Suspicion is how many crashes a row may have caused: those that are counted, and the one that a
// claim of a row in processing would count. The count may be anything, as whoever may write rows
// can write it, too: below 0 is none, and beyond MaxSuspicion no row is suspected more.
func Suspicion(row *driver.Row) int {
	crashes := min(max(row.Crashes, 0), MaxSuspicion)
	if row.Leased {
		crashes++
	}
	return crashes
}

// MaxSuspicion is more crashes than it takes to claim a row of the largest batch alone.
const MaxSuspicion = 1000

// Simple reports whether every row of a window can be taken unchanged, each has its own id, and no key a
// bound of its own. A
// store may find that out by itself and take the rows at once: the decision would be the same.
func Simple(w *driver.Window, limits Limits) bool {
	bytes := int64(0)
	for i := range w.Rows {
		row := &w.Rows[i]
		bytes += row.Bytes
		if row.Waits || row.Held || Suspicion(row) > 0 || behindBlock(row) || i > 0 && w.Rows[i-1].ID == row.ID {
			return false
		}
	}
	return len(w.Rows) <= limits.Rows && limits.PerKey == 0 && (limits.Bytes == 0 || bytes <= limits.Bytes)
}

// Defer decides which rows of a window are taken out of the way of claims: the first row of each
// key that waits for a time becomes its block, unless it has one, and whatever stands behind a
// block leaves with it. Rows in processing stay: their outcome is near. So do rows that another
// transaction writes, and rows with a key beyond the bound: no index of blocks holds it. Where
// order is off every row waits alone.
func Defer(w *driver.Window, unordered bool) (blocks, rows []driver.Ref) {
	first := map[string]bool{} // keys of which a row becomes the block
	for i := range w.Rows {
		row := &w.Rows[i]
		if row.Leased || row.Held || len(row.Key) > envelope.MaxOrderingKeyBytes {
			continue
		}
		alone := unordered || row.Key == ""
		block := row.Waits && (alone || !first[row.Key] && (!row.HasBlock || row.Block == row.ID))
		if block {
			blocks = append(blocks, row.Ref)
			first[row.Key] = !alone
		}
		if leaves := block || !alone && (first[row.Key] || behindBlock(row)); leaves {
			rows = append(rows, row.Ref)
		}
	}
	return blocks, rows
}
