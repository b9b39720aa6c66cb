package core

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// What stands in a window, in a few words.
func ready(id int64, key string) driver.Row { return driver.Row{Ref: driver.Ref{ID: id}, Key: key} }

// ids are rows of which the id is enough.
func ids(list ...int64) []driver.Ref { return driver.ByID(list) }

func with(r driver.Row, change func(*driver.Row)) driver.Row {
	change(&r)
	return r
}

func waits(r *driver.Row)                  { r.Waits = true }                 // in backoff, or scheduled for later
func claimed(r *driver.Row)                { r.Leased, r.Waits = true, true } // under a lease that runs
func lost(r *driver.Row)                   { r.Leased = true }                // under a lease that is over
func crashed(times int) func(*driver.Row)  { return func(r *driver.Row) { r.Crashes = times } }
func weighs(bytes int64) func(*driver.Row) { return func(r *driver.Row) { r.Bytes = bytes } }
func block(id int64) func(*driver.Row)     { return func(r *driver.Row) { r.HasBlock, r.Block = true, id } }

// The decisions that a reader asks about, one by one.
func TestClaimCases(t *testing.T) {
	t.Parallel()
	ten := Limits{Rows: 10}
	for _, c := range []struct {
		name   string
		rows   []driver.Row
		limits Limits
		want   Decision
	}{
		{
			"keys are cut anywhere, and none has a gap",
			[]driver.Row{ready(1, "a"), ready(2, "b"), ready(3, "a"), ready(4, "c"), ready(5, "b"), ready(6, "a")},
			Limits{Rows: 4},
			Decision{Take: ids(1, 2, 3, 4)},
		},
		{
			"a key of which any row is claimed gives nothing, not even what stands before it",
			[]driver.Row{ready(1, "a"), with(ready(2, "a"), claimed), ready(3, "b")},
			ten,
			Decision{Take: ids(3)},
		},
		{
			"a row in backoff holds what follows, and nothing before it",
			[]driver.Row{ready(1, "a"), with(ready(2, "a"), waits), ready(3, "a")},
			ten,
			Decision{Take: ids(1), Waiting: 2},
		},
		{
			"rows without a key wait for no other",
			[]driver.Row{with(ready(1, ""), waits), ready(2, ""), with(ready(3, ""), claimed), ready(4, "")},
			ten,
			Decision{Take: ids(2, 4), Waiting: 1},
		},
		{
			"without order no row waits for another",
			[]driver.Row{with(ready(1, "a"), waits), ready(2, "a"), with(ready(3, "a"), claimed), ready(4, "a")},
			Limits{Rows: 10, Unordered: true},
			Decision{Take: ids(2, 4), Waiting: 1},
		},
		{
			"what is behind a block waits, the block itself and what stands before it do not",
			[]driver.Row{with(ready(1, "a"), block(2)), with(ready(2, "a"), block(2)), with(ready(3, "a"), block(2))},
			ten,
			Decision{Take: ids(1, 2), Waiting: 1},
		},
		{
			"what may have crashed a process is claimed apart, by half",
			[]driver.Row{with(ready(1, "a"), lost), with(ready(2, "b"), lost), ready(3, "c"), ready(4, "d")},
			Limits{Rows: 2},
			Decision{Take: ids(1)},
		},
		{
			"a lost row behind one that was not lost waits for it",
			[]driver.Row{ready(1, "a"), with(ready(2, "a"), lost), ready(3, "b")},
			ten,
			Decision{Take: ids(1, 3)},
		},
		{
			"rows behind a lost one of their key wait for it, and so do other keys",
			[]driver.Row{with(ready(1, "a"), lost), ready(2, "a"), ready(3, "b")},
			ten,
			Decision{Take: ids(1)},
		},
		{
			"a row that crashed more often goes with neither the rows before nor the rows behind it",
			[]driver.Row{ready(1, "a"), with(ready(2, "a"), crashed(3)), ready(3, "a"), ready(4, "b")},
			ten,
			Decision{Take: ids(1, 4)},
		},
		{
			"the first row is taken whatever it weighs, and nothing behind it",
			[]driver.Row{with(ready(1, "a"), weighs(50)), with(ready(2, "b"), weighs(0)), with(ready(3, "c"), weighs(1))},
			Limits{Rows: 10, Bytes: 49},
			Decision{Take: ids(1), Cut: true},
		},
		{
			"a claim may use up its bytes",
			[]driver.Row{with(ready(1, "a"), weighs(20)), with(ready(2, "b"), weighs(30)), with(ready(3, "c"), weighs(1))},
			Limits{Rows: 10, Bytes: 50},
			Decision{Take: ids(1, 2), Cut: true},
		},
		{
			"of two rows with one id the second stays, and with it what is behind it of its key",
			[]driver.Row{ready(1, "a"), ready(1, "a"), ready(2, "a"), ready(3, "b")},
			ten,
			Decision{Take: ids(1, 3)},
		},
		{
			"a small row does not overtake a large one, not even of another key",
			[]driver.Row{with(ready(1, "a"), weighs(20)), with(ready(2, "b"), weighs(60)), with(ready(3, "c"), weighs(5))},
			Limits{Rows: 10, Bytes: 50},
			Decision{Take: ids(1), Cut: true},
		},
		{
			"what cannot be taken weighs nothing",
			[]driver.Row{with(with(ready(1, "a"), claimed), weighs(1000)), with(ready(2, "a"), weighs(1000)), with(ready(3, "b"), weighs(50))},
			Limits{Rows: 10, Bytes: 50},
			Decision{Take: ids(3)},
		},
		{
			"those of a crash are bounded by bytes, too",
			[]driver.Row{with(with(ready(1, "a"), lost), weighs(10)), with(with(ready(2, "b"), lost), weighs(10)), with(with(ready(3, "c"), lost), weighs(10))},
			Limits{Rows: 8, Bytes: 25},
			Decision{Take: ids(1, 2), Cut: true},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, Claim(&driver.Window{Rows: c.rows}, c.limits))
		})
	}
}

// One message kills every process that sends it. It is found by halving, claimed alone from then
// on, and no other row is claimed alone beside a crash.
func TestClaimFindsPoison(t *testing.T) {
	t.Parallel()
	for _, unordered := range []bool{false, true} {
		const rows, poison = 500, 333
		w := driver.Window{}
		for id := range int64(rows) {
			w.Rows = append(w.Rows, ready(id, string(rune('a'+id*id%20))))
		}
		crashes, alone := 0, 0
		for claims := 0; alone < 5; claims++ {
			require.Less(t, claims, 200, "the poison must be found")
			d := Claim(&w, Limits{Rows: rows, Unordered: unordered})
			require.NotEmpty(t, d.Take)
			taken := driver.IDs(d.Take)
			if !slices.Contains(taken, poison) {
				w.Rows = slices.DeleteFunc(w.Rows, func(r driver.Row) bool { return slices.Contains(taken, r.ID) })
				continue
			}
			crashes++
			for i := range w.Rows {
				if r := &w.Rows[i]; slices.Contains(taken, r.ID) {
					r.Crashes, r.Leased = Suspicion(r), true
				}
			}
			if len(d.Take) == 1 {
				alone++
			}
		}
		assert.LessOrEqual(t, crashes, 10+5, "500, 250, 125 ... 1, and then alone")
	}
}

// The decisions about what leaves the way of claims.
func TestDeferCases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		rows         []driver.Row
		unordered    bool
		blocks, want []driver.Ref
	}{
		{
			"a row that waits takes with it what is behind it, and nothing before it",
			[]driver.Row{ready(1, "a"), with(ready(2, "a"), waits), ready(3, "a"), ready(4, "b")},
			false,
			ids(2),
			ids(2, 3),
		},
		{
			"a claimed row becomes no block, and what stands behind it stays",
			[]driver.Row{with(ready(1, "a"), claimed), ready(2, "a"), with(ready(3, "a"), waits), ready(4, "a")},
			false,
			ids(3),
			ids(3, 4),
		},
		{
			"a key has one block",
			[]driver.Row{with(ready(1, "a"), waits), with(ready(2, "a"), waits)},
			false,
			ids(1),
			ids(1, 2),
		},
		{
			"a row behind the block of its key becomes none",
			[]driver.Row{with(with(ready(2, "a"), waits), block(1)), with(ready(3, "a"), block(1))},
			false,
			nil,
			ids(2, 3),
		},
		{
			"a block that must wait again stays the block",
			[]driver.Row{with(with(ready(1, "a"), waits), block(1)), with(ready(2, "a"), block(1))},
			false,
			ids(1),
			ids(1, 2),
		},
		{
			"rows without a key wait alone",
			[]driver.Row{with(ready(1, ""), waits), ready(2, ""), with(ready(3, ""), waits)},
			false,
			ids(1, 3),
			ids(1, 3),
		},
		{
			"without order all do",
			[]driver.Row{with(ready(1, "a"), waits), ready(2, "a"), with(ready(3, "a"), waits)},
			true,
			ids(1, 3),
			ids(1, 3),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			blocks, rows := Defer(&driver.Window{Rows: c.rows}, c.unordered)
			assert.Equal(t, c.blocks, blocks)
			assert.Equal(t, c.want, rows)
		})
	}
}
