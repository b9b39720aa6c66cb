package core

import (
	"slices"

	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Limits bound a claim.
type Limits struct {
	// Rows is the most rows to take, at least 1.
	Rows int
	// Bytes is the most that their payloads may have together; 0 = no bound. The first row is taken
	// whatever it has.
	Bytes int64
	// Unordered switches ordering keys off.
	Unordered bool
}

// A Decision about a window.
type Decision struct {
	// Take is the rows to claim, by their ids, in ascending order.
	Take []int64
	// Waiting is how many rows wait for a time, or behind one that does.
	Waiting int
	// Cut is true when the bytes kept rows back.
	Cut bool
	// AheadWaits is true when the priority classes of the shard's keys hold each other back, and what
	// holds waits for a time.
	AheadWaits bool
}

// verdict is what the rows of a key say about one of them.
type verdict struct {
	clear   bool // it and all rows of its key before it can go
	waits   bool // it or one of these waits for a time
	claimed bool // a row of its key, earlier or later, is under a lease
	// Suspicion is how many crashes a row may have caused: the least and the most of the rows so far.
	lowest, highest int
}

// Claim decides which rows of a window are claimed: of each key a prefix without a gap, nothing of a
// key that somebody else has claimed, and rows whose lease ran out apart from the others.
func Claim(w *driver.Window, limits Limits) Decision {
	var d Decision
	d.AheadWaits = w.Ahead != nil && w.Ahead.Waits
	if len(w.Rows) == 0 {
		return d
	}
	verdicts := judge(w, limits.Unordered)
	first := -1
	for i := range verdicts {
		v := &verdicts[i]
		if v.waits {
			d.Waiting++
		}
		d.AheadWaits = d.AheadWaits || w.Rows[i].Low == driver.LowWaits
		if first < 0 && v.free() {
			first = i
		}
	}
	if first < 0 {
		return d
	}
	// Fewer at a time after each crash, until the row that kills its process is claimed alone.
	suspicion := verdicts[first].lowest
	limit := max(1, limits.Rows>>min(suspicion, 30))
	bytes := int64(0)
	d.Take = make([]int64, 0, min(limit, len(verdicts)-first))
	for i := first; i < len(verdicts) && len(d.Take) < limit; i++ {
		v, row := &verdicts[i], &w.Rows[i]
		if !v.free() || v.lowest != suspicion || v.highest != suspicion {
			continue
		}
		if bytes += row.Bytes; limits.Bytes > 0 && bytes > limits.Bytes && len(d.Take) > 0 {
			d.Cut = true // a prefix of a prefix has no gap either
			break
		}
		d.Take = append(d.Take, row.ID)
	}
	return d
}

func (v *verdict) free() bool { return v.clear && !v.claimed }

// judge looks at each row of a window and, where order is on, at the rows of its key.
func judge(w *driver.Window, unordered bool) []verdict {
	verdicts := make([]verdict, len(w.Rows))
	last := make(map[string]int, len(w.Rows)) // by key: the row of it that was seen last
	claimed := map[string]bool{}
	for i := range w.Rows {
		row, v := &w.Rows[i], &verdicts[i]
		suspicion := Suspicion(row)
		*v = verdict{clear: !row.Waits, waits: row.Waits && !row.Leased, lowest: suspicion, highest: suspicion}
		if unordered || row.Key == "" {
			v.claimed = row.Leased && row.Waits
			continue
		}
		behind := row.HasBlock && row.Block < row.ID
		v.clear = v.clear && !behind && row.Low == driver.NoLow && (w.Ahead == nil || row.ID < w.Ahead.ID)
		v.waits = v.waits || behind || row.Low == driver.LowWaits
		if at, ok := last[row.Key]; ok {
			before := &verdicts[at]
			v.clear, v.waits = v.clear && before.clear, v.waits || before.waits
			v.lowest, v.highest = min(v.lowest, before.lowest), max(v.highest, before.highest)
		}
		last[row.Key] = i
		if row.Leased && row.Waits {
			claimed[row.Key] = true
		}
	}
	for i := range verdicts {
		if key := w.Rows[i].Key; key != "" && claimed[key] {
			verdicts[i].claimed = true
		}
	}
	return verdicts
}

// Suspicion is how many crashes a row may have caused: those that are counted, and the one that a
// claim of a row in processing would count.
func Suspicion(row *driver.Row) int {
	if row.Leased {
		return row.Crashes + 1
	}
	return row.Crashes
}

// Simple reports whether every row of a window can be taken as it stands. A store may find that out
// by itself and take the rows at once: the decision would be the same.
func Simple(w *driver.Window, limits Limits) bool {
	bytes := int64(0)
	for i := range w.Rows {
		row := &w.Rows[i]
		bytes += row.Bytes
		if row.Waits || Suspicion(row) > 0 || row.HasBlock && row.Block < row.ID || row.Low != driver.NoLow {
			return false
		}
	}
	return w.Ahead == nil && len(w.Rows) <= limits.Rows && (limits.Bytes == 0 || bytes <= limits.Bytes)
}

// Defer decides which rows of a window are taken out of the way of claims: the first row of each key
// that waits for a time becomes its block, unless it has one, and whatever stands behind a block
// leaves with it. Rows in processing stay: their outcome is near.
func Defer(w *driver.Window, unordered bool) (blocks, rows []int64) {
	first := map[string]int64{} // by key: the row that becomes its block, if it has none
	for i := range w.Rows {
		row := &w.Rows[i]
		behind := false
		if row.Waits && !row.Leased && (unordered || !row.HasBlock || row.Block == row.ID) {
			if unordered || row.Key == "" {
				blocks, behind = append(blocks, row.ID), true
			} else if _, ok := first[row.Key]; !ok {
				first[row.Key] = row.ID
				blocks = append(blocks, row.ID)
			}
		}
		if !unordered && row.Key != "" {
			_, found := first[row.Key]
			behind = found || row.HasBlock && row.Block < row.ID
		}
		if behind && !row.Leased {
			rows = append(rows, row.ID)
		}
	}
	slices.Sort(rows)
	return blocks, rows
}
