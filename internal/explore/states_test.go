package explore

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/outbox"
)

// mistaken are states that one rule less, or another one, would give.
func mistaken(change func(f *core.Facts)) func(*core.Facts) outbox.State {
	return func(f *core.Facts) outbox.State {
		changed := *f
		change(&changed)
		return core.State(&changed)
	}
}

func swapped(a, b outbox.State) func(*core.Facts) outbox.State {
	return func(f *core.Facts) outbox.State {
		switch state := core.State(f); state {
		case a:
			return b
		case b:
			return a
		default:
			return state
		}
	}
}

// Each mistake about the states of rows, in what is known of a row or in what follows from it, is found.
func TestStateMutations(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name     string
		world    string
		mutation mutation
		mistake  func(*core.Facts) outbox.State
	}{
		{"a deferred row counts as if it were in the claim's way", "blocks", countsDeferred, nil},
		{"a lease that is over counts as one that runs", "faults", leasesNeverEnd, nil},
		{"a claimed row of the key counts only where it is an earlier one", "operators", overlooksClaims, nil},
		{"deferred rows of the key go after those that were not deferred", "blocks", passesDeferred, nil},
		{"a block of another class counts", "classes", blocksOfAnyClass, nil},
		{"a block counts although its row is done", "blocks", blocksWhenDone, nil},
		{"backoff and blocked are swapped", "on_abandon: block", sound, swapped(outbox.StateBackoff, outbox.StateBlocked)},
		{"behind and blocked are swapped", "on_abandon: block", sound, swapped(outbox.StateBehind, outbox.StateBlocked)},
		{"claimed and due are swapped", "faults", sound, swapped(outbox.StateClaimed, outbox.StateDue)},
		{"earlier rows and claimed ones do not count", "faults", sound, mistaken(func(f *core.Facts) { f.Earlier, f.Claimed = false, false })},
		{"a row's own time does not count", "failures", sound, mistaken(func(f *core.Facts) {
			if f.Status != outbox.StatusProcessing {
				f.Time = core.Come
			}
		})},
		{"a follower waits for its block without order alone", "blocks", sound, mistaken(func(f *core.Facts) {
			if !f.Unordered {
				f.Block = core.NoEntry
			}
		})},
		{"what was deferred behind a block goes when order is off", "blocks", sound, mistaken(func(f *core.Facts) { f.Deferred = f.Deferred && !f.Unordered })},
		{"a block that was brought back strands its row", "blocks", sound, mistaken(func(f *core.Facts) { f.Deferred = f.Deferred || f.Entry == core.Returned })},
		{"a row that is a block is behind itself", "blocks", sound, mistaken(func(f *core.Facts) {
			if f.Entry == core.Returned {
				f.Block = core.Resting
			}
		})},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w := sized(t, m.world, long)
			w.protocol.broken, w.protocol.mistake = m.mutation, m.mistake
			x := &exploration{world: w, only: States}
			found := x.explore()
			require.NotNil(t, found, "nothing was found in %d states", len(x.origins))
			t.Logf("found in %d states\n%s", len(x.origins), found)
		})
	}
}

// drawTable makes any table, whatever a person may have written into it.
func drawTable(t *rapid.T) *Table {
	table := &Table{Token: 9}
	for id := range rapid.IntRange(1, 5).Draw(t, "rows") {
		r := Row{
			ID: id + 1, Key: rapid.IntRange(0, 2).Draw(t, "key"), Class: rapid.SampledFrom([]Class{Normal, Normal, Backfill}).Draw(t, "class"),
			Status: rapid.SampledFrom([]Status{Pending, Pending, Processing, Failed, Published, Abandoned}).Draw(t, "status"),
		}
		if r.open() {
			r.Waits, r.Deferred = rapid.IntRange(0, 2).Draw(t, "waits") == 0, rapid.Bool().Draw(t, "deferred")
		}
		if r.Status == Pending || r.Status == Failed {
			r.Scheduled = rapid.IntRange(0, 4).Draw(t, "scheduled") == 0
		}
		if r.leased() {
			r.Token, r.Deferred = 1+id, r.Deferred && !r.Waits // what is claimed is not deferred, and no lift would bring it back
		}
		if rapid.IntRange(0, 7).Draw(t, "gone") > 0 {
			table.Rows = append(table.Rows, r)
		}
		if rapid.IntRange(0, 2).Draw(t, "block") > 0 || table.blockOf(r.Key, r.Class) != nil {
			continue
		}
		table.addBlock(Block{Row: r.ID, Key: r.Key, Shard: r.Class, Wake: rapid.SampledFrom([]Wake{Rests, Due, Back, Operator}).Draw(t, "wake")})
	}
	return table
}

// Whatever stands in a table: what is due is what claims take first, once they have lifted what they
// lift.
func TestStatesOfAnyTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, p := drawTable(t), small()
		for _, violation := range p.CheckDue(table) {
			t.Fatal(violation, "\n", (&State{Table: *table}).String())
		}
	})
}
