package core

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// drawWindow makes any window, consistent or not: what stands in a table can have been changed by
// hand.
func drawWindow(t *rapid.T) driver.Window {
	w := driver.Window{Version: 1, Rows: make([]driver.Row, rapid.IntRange(0, 12).Draw(t, "rows"))}
	id := int64(10)
	for i := range w.Rows {
		leased := rapid.Bool().Draw(t, "leased")
		w.Rows[i] = driver.Row{
			Ref: driver.Ref{ID: id, MessageID: uuid.UUID{byte(i + 1)}}, Key: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key"), Leased: leased,
			Waits: rapid.IntRange(0, 3).Draw(t, "waits") == 0, Held: rapid.IntRange(0, 5).Draw(t, "held") == 0, Crashes: rapid.SampledFrom([]int{0, 0, 0, 1, 2, 99, -2, math.MinInt32, math.MaxInt32}).Draw(t, "crashes"),
			Bytes: rapid.Int64Range(0, 100).Draw(t, "bytes"),
		}
		if r := &w.Rows[i]; r.Key != "" && rapid.IntRange(0, 4).Draw(t, "block") == 0 {
			r.HasBlock, r.Block, w.Blocked = true, rapid.Int64Range(0, 140).Draw(t, "block's id"), true
		}
		id += rapid.SampledFrom([]int64{10, 10, 10, 0}).Draw(t, "distance") // an id can be there twice
	}
	return w
}

func drawLimits(t *rapid.T) Limits {
	return Limits{
		Rows: rapid.IntRange(1, 14).Draw(t, "limit"), Bytes: rapid.SampledFrom([]int64{0, 1, 50, 300}).Draw(t, "limit of bytes"),
		Unordered: rapid.Bool().Draw(t, "unordered"), PerKey: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "limit of a key"),
	}
}

// row finds a row of a window.
func row(w *driver.Window, ref driver.Ref) *driver.Row {
	return &w.Rows[slices.IndexFunc(w.Rows, func(r driver.Row) bool { return r.Ref == ref })]
}

func sorted(rows []driver.Ref) bool {
	return slices.IsSortedFunc(rows, func(a, b driver.Ref) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), bytes.Compare(a.MessageID[:], b.MessageID[:]))
	})
}

// Whatever stands in a window: a claim stays within its limits, takes nothing that waits, and of
// each key a prefix without a gap.
func TestClaim(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkClaim)
}

func FuzzClaim(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkClaim)) }

func checkClaim(t *rapid.T) {
	w, limits := drawWindow(t), drawLimits(t)
	d := Claim(&w, limits)
	require.LessOrEqual(t, len(d.Take), limits.Rows)
	require.True(t, sorted(d.Take))
	require.Len(t, slices.Compact(driver.IDs(d.Take)), len(d.Take), "an id once")
	total, suspicion, ofKey := int64(0), -1, map[string]int{}
	for _, ref := range d.Take {
		r, id := row(&w, ref), ref.ID
		if ofKey[r.Key]++; limits.PerKey > 0 && r.Key != "" && !limits.Unordered {
			require.LessOrEqual(t, ofKey[r.Key], limits.PerKey)
		}
		require.False(t, r.Waits || r.Held, "row %d", id)
		total += r.Bytes
		if suspicion < 0 {
			suspicion = Suspicion(r)
		}
		require.Equal(t, suspicion, Suspicion(r), "rows after a crash are claimed apart")
		if limits.Unordered || r.Key == "" {
			continue
		}
		require.False(t, behindBlock(r), "row %d", id)
		for i := range w.Rows {
			other := &w.Rows[i]
			if other.Key == r.Key {
				before := bytes.Compare(other.MessageID[:], r.MessageID[:]) < 0
				require.False(t, other.Leased && other.Waits, "the key of row %d is claimed", id)
				require.True(t, !before || slices.Contains(d.Take, other.Ref), "row %d is left out before row %d", other.ID, id)
			}
		}
	}
	if limits.Bytes > 0 && len(d.Take) > 1 {
		require.LessOrEqual(t, total, limits.Bytes)
	}
	if suspicion > 0 {
		require.LessOrEqual(t, len(d.Take), max(1, limits.Rows>>min(suspicion, 30)))
	}
}

// A window that is simple is taken as it stands.
func TestSimple(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkSimple)
}

func FuzzSimple(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkSimple)) }

func checkSimple(t *rapid.T) {
	w, limits := drawWindow(t), drawLimits(t)
	if !Simple(&w, limits) {
		return
	}
	d := Claim(&w, limits)
	require.Len(t, d.Take, len(w.Rows))
	require.Equal(t, Decision{Take: d.Take}, d)
}

// What is deferred comes back: each row has a block of its key at or before it, that is there or is
// made now.
func TestDefer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkDefer)
}

func FuzzDefer(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkDefer)) }

func checkDefer(t *rapid.T) {
	w, unordered := drawWindow(t), rapid.Bool().Draw(t, "unordered")
	blocks, rows := Defer(&w, unordered)
	require.True(t, sorted(blocks) && sorted(rows))
	keys := map[string]driver.Ref{}
	for _, ref := range blocks {
		r, id := row(&w, ref), ref.ID
		require.True(t, r.Waits && !r.Leased, "row %d", id)
		require.Contains(t, rows, ref)
		if !unordered && r.Key != "" {
			require.NotContains(t, keys, r.Key, "one block for each key")
			require.True(t, !r.HasBlock || r.Block == id, "row %d: its key has another block", id)
			keys[r.Key] = ref
		}
	}
	for _, ref := range rows {
		r, id := row(&w, ref), ref.ID
		require.False(t, r.Leased || r.Held, "row %d", id)
		made, ok := keys[r.Key]
		require.True(t, slices.Contains(blocks, ref) || ok && bytes.Compare(made.MessageID[:], ref.MessageID[:]) < 0 || behindBlock(r), "row %d has no block", id)
	}
}

// A key beyond the bound stays in the way: no index of blocks holds it.
func TestDeferLongKey(t *testing.T) {
	t.Parallel()
	w := driver.Window{Rows: []driver.Row{{Ref: driver.Ref{ID: 1}, Key: fmt.Sprintf("%0513d", 1), Waits: true}, {Ref: driver.Ref{ID: 2}, Key: fmt.Sprintf("%0512d", 1), Waits: true}}}
	blocks, rows := Defer(&w, false)
	assert.Equal(t, ids(2), blocks)
	assert.Equal(t, ids(2), rows)
}

// A block goes only when no follower can be left behind it, and each gets at most one verdict.
func TestLift(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkLift)
}

func FuzzLift(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkLift)) }

func checkLift(t *rapid.T) {
	const followers = 3
	blocks := make([]driver.BlockState, rapid.IntRange(0, 14).Draw(t, "blocks"))
	for i := range blocks {
		b := &blocks[i]
		b.ID, b.MessageID, b.HasKey = int64(i+1), uuid.New(), rapid.IntRange(0, 3).Draw(t, "key") > 0
		b.Due, b.Done, b.Waits = rapid.Bool().Draw(t, "due"), rapid.Bool().Draw(t, "done"), rapid.Bool().Draw(t, "waits")
		for n := range rapid.IntRange(0, followers).Draw(t, "followers") {
			b.Followers = append(b.Followers, driver.Ref{ID: int64(100*(i+1) + n)})
		}
	}
	lift := Lift(blocks, followers)
	seen := map[int64]string{}
	note := func(verdict string, list []driver.BlockState) {
		for i := range list {
			require.NotContains(t, seen, list[i].ID)
			seen[list[i].ID] = verdict
		}
	}
	note("wake", lift.Wake)
	note("rest", lift.Rest)
	note("drop", lift.Drop)
	done := 0
	for i := range lift.Free {
		f := &lift.Free[i]
		require.True(t, f.Block.Done && f.Block.HasKey)
		require.Equal(t, f.Block.Followers, f.Rows)
		require.Equal(t, len(f.Rows) == followers, f.Move)
		require.Equal(t, !f.Move, seen[f.Block.ID] == "drop")
	}
	for i := range blocks {
		b, verdict := &blocks[i], seen[blocks[i].ID]
		switch {
		case b.Done && b.HasKey:
			if done++; done <= driver.MaxDone {
				require.Equal(t, len(b.Followers) < followers, verdict == "drop")
			} else {
				require.Empty(t, verdict, "the rest comes with the next claim")
			}
		case b.Done:
			require.Equal(t, "drop", verdict)
		case b.Waits:
			require.Equal(t, "rest", verdict)
		default:
			require.Equal(t, b.Due, verdict == "wake")
		}
	}
	require.Equal(t, len(seen)+len(lift.Free) == 0, Nothing(&lift))
}

// A row that another transaction is writing is not taken, and holds the later rows of its key, but
// no earlier one and no other key. It waits for no time, and becomes no block.
func TestHeldRows(t *testing.T) {
	t.Parallel()
	w := &driver.Window{Rows: []driver.Row{
		{Ref: driver.Ref{ID: 1}, Key: "k"}, {Ref: driver.Ref{ID: 2}, Key: "k", Held: true, Waits: true}, {Ref: driver.Ref{ID: 3}, Key: "k"}, {Ref: driver.Ref{ID: 4}, Key: "l"}, {Ref: driver.Ref{ID: 5}, Held: true}, {Ref: driver.Ref{ID: 6}},
	}}
	limits := Limits{Rows: 10}
	require.Equal(t, ids(1, 4, 6), Claim(w, limits).Take)
	require.False(t, Simple(w, limits))
	blocks, rows := Defer(w, false)
	require.Empty(t, blocks)
	require.Empty(t, rows)
	for _, held := range []driver.Row{{Ref: driver.Ref{ID: 1}, Held: true}, {Ref: driver.Ref{ID: 1}, Key: "k", Held: true}} {
		alone := &driver.Window{Rows: []driver.Row{held}}
		require.Empty(t, Claim(alone, limits).Take)
		require.False(t, Simple(alone, limits))
		limits.Unordered = true
		require.Empty(t, Claim(alone, limits).Take)
		limits.Unordered = false
	}
}

// What stands behind a block is deferred, but for a row that another transaction is writing.
func TestHeldRowsBehindABlock(t *testing.T) {
	t.Parallel()
	blocks, rows := Defer(&driver.Window{Rows: []driver.Row{
		{Ref: driver.Ref{ID: 1}, Key: "k", Waits: true}, {Ref: driver.Ref{ID: 2}, Key: "k", Held: true}, {Ref: driver.Ref{ID: 3}, Key: "k"},
	}}, false)
	require.Equal(t, ids(1), blocks)
	require.Equal(t, ids(1, 3), rows)
}
