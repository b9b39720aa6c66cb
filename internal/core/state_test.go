package core

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
)

// The states that a reader asks about, one by one.
func TestStateCases(t *testing.T) {
	t.Parallel()
	const pending, processing, failed = outbox.StatusPending, outbox.StatusProcessing, outbox.StatusFailed
	for _, c := range []struct {
		name  string
		facts Facts
		want  outbox.State
	}{
		{"published", Facts{Status: outbox.StatusPublished}, ""},
		{"abandoned, and its key waits for an operator", Facts{Status: outbox.StatusAbandoned, Entry: Halted}, ""},
		{"written", Facts{Status: pending}, outbox.StateDue},
		{"failed, and its backoff is over", Facts{Status: failed}, outbox.StateDue},
		{"failed, and its time has not come", Facts{Status: failed, Time: Ahead}, outbox.StateBackoff},
		{"written for later", Facts{Status: pending, Time: Ahead, Scheduled: true}, outbox.StateScheduled},
		{"released, since its destination is unavailable", Facts{Status: pending, Time: Ahead}, outbox.StateBackoff},
		{"claimed", Facts{Status: processing, Time: Ahead}, outbox.StateClaimed},
		{"claimed, and the broker was paused since", Facts{Status: processing, Time: Ahead, Paused: true}, outbox.StateClaimed},
		{"claimed, and taken out of the configuration since", Facts{Status: processing, Time: Ahead, Unconfigured: true}, outbox.StateClaimed},
		{"claimed behind another of its key, in the same claim", Facts{Status: processing, Time: Ahead, Earlier: true}, outbox.StateClaimed},
		{"the lease is over", Facts{Status: processing}, outbox.StateDue},
		{"the lease is over, and so is that of the row before it", Facts{Status: processing, Earlier: true}, outbox.StateBehind},
		{"a lease without an end", Facts{Status: processing, Time: Never}, outbox.StateStranded},
		{"a time that never comes", Facts{Status: pending, Time: Never}, outbox.StateStranded},
		{"a time that never comes, behind another row", Facts{Status: pending, Time: Never, Earlier: true}, outbox.StateStranded},
		{"an unknown status", Facts{Status: "waiting"}, outbox.StateStranded},
		{"in a shard that no relay claims from", Facts{Status: pending, Unclaimable: true}, outbox.StateStranded},
		{"deferred and forgotten", Facts{Status: pending, Deferred: true}, outbox.StateStranded},
		{"deferred and forgotten, without order", Facts{Status: pending, Deferred: true, Unordered: true}, outbox.StateStranded},
		{"deferred until its time", Facts{Status: failed, Time: Ahead, Deferred: true, Entry: Resting}, outbox.StateBackoff},
		{"deferred, and an operator made its time come, but not that of its block", Facts{Status: failed, Deferred: true, Entry: Resting}, outbox.StateBackoff},
		{"deferred until its schedule", Facts{Status: pending, Time: Ahead, Scheduled: true, Deferred: true, Entry: Resting}, outbox.StateScheduled},
		{"deferred, and its time has come", Facts{Status: failed, Deferred: true, Entry: Waking}, outbox.StateDue},
		{"deferred, its block's time has come, and its own has not", Facts{Status: failed, Time: Ahead, Deferred: true, Entry: Waking}, outbox.StateBackoff},
		{"deferred, and its block was brought back without it", Facts{Status: failed, Deferred: true, Entry: Returned}, outbox.StateStranded},
		{"back in the claim's way, the block of its key", Facts{Status: failed, Entry: Returned}, outbox.StateDue},
		{"in the claim's way, and its block says otherwise", Facts{Status: failed, Entry: Resting}, outbox.StateDue},
		{"deferred, and a block without an end", Facts{Status: failed, Deferred: true, Entry: Halted}, outbox.StateStranded},
		{"deferred behind the block of its key", Facts{Status: pending, Deferred: true, Block: Resting}, outbox.StateBehind},
		{"written while its key is blocked by a failed row", Facts{Status: pending, Block: Resting}, outbox.StateBehind},
		{"deferred, and the row that its key waited for is done", Facts{Status: pending, Deferred: true, Block: Returned, BlockDone: true}, outbox.StateDue},
		{"deferred and forgotten, behind another one", Facts{Status: pending, Deferred: true, Earlier: true}, outbox.StateStranded},
		{"deferred, like an earlier one, and the row that their key waited for is done", Facts{Status: pending, Deferred: true, Block: Returned, BlockDone: true, EarlierDeferred: true}, outbox.StateBehind},
		{"written after those that come back before it", Facts{Status: pending, Block: Waking, BlockDone: true, EarlierDeferred: true}, outbox.StateBehind},
		{"the row that the key waits for is gone, and the time is still to come", Facts{Status: pending, Block: Resting, BlockDone: true}, outbox.StateBehind},
		{"before the block of its key", Facts{Status: pending, Block: Resting, BlockLater: true}, outbox.StateDue},
		{"before the block of its key, and deferred", Facts{Status: pending, Deferred: true, Block: Resting, BlockLater: true}, outbox.StateBehind},
		{"a later row of its key is claimed", Facts{Status: pending, Claimed: true}, outbox.StateBehind},
		{"its key waits for an operator", Facts{Status: pending, Deferred: true, Block: Halted}, outbox.StateBlocked},
		{"its key waits for an operator, and it failed", Facts{Status: failed, Time: Ahead, Block: Halted}, outbox.StateBlocked},
		{"failed, behind another failed row of its key", Facts{Status: failed, Time: Ahead, Earlier: true}, outbox.StateBehind},
		{"another row of its key is open, and order is off", Facts{Status: pending, Earlier: true, Unordered: true}, outbox.StateDue},
		{"its key is blocked, and order is off", Facts{Status: pending, Block: Halted, Unordered: true}, outbox.StateDue},
		{"deferred behind a block before order was switched off", Facts{Status: pending, Deferred: true, Block: Resting, Unordered: true}, outbox.StateBehind},
		{"paused", Facts{Status: pending, Paused: true}, outbox.StatePaused},
		{"paused, and it waits for its time as well", Facts{Status: failed, Time: Ahead, Paused: true}, outbox.StateBackoff},
		{"paused, and its key waits for an operator as well", Facts{Status: pending, Block: Halted, Paused: true}, outbox.StateBlocked},
		{"paused and unavailable", Facts{Status: pending, Paused: true, Unavailable: true}, outbox.StatePaused},
		{"unavailable", Facts{Status: pending, Unavailable: true}, outbox.StateUnavailable},
		{"unconfigured and paused", Facts{Status: pending, Unconfigured: true, Paused: true}, outbox.StateUnconfigured},
		{"unconfigured, and a time that never comes", Facts{Status: pending, Unconfigured: true, Time: Never}, outbox.StateUnconfigured},
		{"scheduled, in a key that waits for an operator", Facts{Status: pending, Scheduled: true, Block: Halted, Earlier: true}, outbox.StateScheduled},
		{"scheduled, and in a shard that no relay claims from", Facts{Status: pending, Scheduled: true, Unclaimable: true}, outbox.StateStranded},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, State(&c.facts))
		})
	}
}

func drawFacts(t *rapid.T) Facts {
	return Facts{
		Status: rapid.SampledFrom(append(outbox.Statuses(), "", "unknown")).Draw(t, "status"),
		Time:   rapid.SampledFrom([]Time{Come, Ahead, Never}).Draw(t, "time"), Scheduled: rapid.Bool().Draw(t, "scheduled"), Deferred: rapid.Bool().Draw(t, "deferred"),
		Entry:      rapid.SampledFrom([]Entry{NoEntry, Resting, Waking, Returned, Halted}).Draw(t, "entry"),
		Block:      rapid.SampledFrom([]Entry{NoEntry, NoEntry, Resting, Waking, Returned, Halted}).Draw(t, "block"),
		BlockLater: rapid.Bool().Draw(t, "later"), BlockDone: rapid.Bool().Draw(t, "done"), Earlier: rapid.IntRange(0, 2).Draw(t, "earlier") == 0,
		EarlierDeferred: rapid.Bool().Draw(t, "earlier deferred"), Claimed: rapid.IntRange(0, 2).Draw(t, "claimed") == 0, Unordered: rapid.Bool().Draw(t, "unordered"),
		Unclaimable: rapid.IntRange(0, 4).Draw(t, "unclaimable") == 0, Unconfigured: rapid.IntRange(0, 4).Draw(t, "unconfigured") == 0,
		Paused: rapid.Bool().Draw(t, "paused"), Unavailable: rapid.Bool().Draw(t, "unavailable"),
	}
}

// Whatever the facts: a row is in one state while it is open, and in none afterwards; and the state
// does what it says.
func TestState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkState)
}

func FuzzState(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkState)) }

func checkState(t *rapid.T) {
	f := drawFacts(t)
	state := State(&f)
	require.Equal(t, !f.Status.Terminal(), state.Valid())
	require.Equal(t, f.Status.Terminal(), state == "")
	change := func(change func(*Facts)) outbox.State {
		changed := f
		change(&changed)
		return State(&changed)
	}
	require.Equal(t, state == outbox.StateClaimed, f.Status == outbox.StatusProcessing && f.Time == Ahead)
	switch state {
	case outbox.StateDue:
		require.False(t, f.Paused || f.Unavailable || f.Unconfigured || f.Unclaimable || f.Time != Come)
	case outbox.StateClaimed:
	case outbox.StateScheduled:
		require.True(t, f.Scheduled)
		require.NotEqual(t, outbox.StateScheduled, change(func(f *Facts) { f.Scheduled = false }))
	case outbox.StateBackoff:
		passed := func(f *Facts) {
			if f.Time = Come; f.Entry == Resting {
				f.Entry = Waking
			}
		}
		switch next := change(passed); {
		case f.Deferred && f.Entry == Returned: // a lift has it rest again, if one comes in time
			require.Equal(t, outbox.StateStranded, next)
		default:
			require.Contains(t, []outbox.State{outbox.StateDue, outbox.StatePaused, outbox.StateUnavailable}, next, "time alone makes it due")
		}
	case outbox.StateBehind:
		require.NotEqual(t, outbox.StateBehind, change(func(f *Facts) { f.Block, f.Earlier, f.Claimed = NoEntry, false, false }))
	case outbox.StateBlocked:
		require.Equal(t, Halted, f.Block)
	case outbox.StatePaused:
		require.Contains(t, []outbox.State{outbox.StateUnavailable, outbox.StateDue}, change(func(f *Facts) { f.Paused = false }))
	case outbox.StateUnavailable:
		require.Equal(t, outbox.StateDue, change(func(f *Facts) { f.Unavailable = false }))
	case outbox.StateUnconfigured:
		require.True(t, f.Unconfigured)
		require.NotEqual(t, outbox.StateClaimed, change(func(f *Facts) { f.Unconfigured = false }))
	case outbox.StateStranded:
		require.NotEqual(t, outbox.StateDue, change(func(f *Facts) { f.Paused, f.Unavailable = false, false }))
	}
}

// A fact more that holds a row back never makes it due, and one less never takes that away.
func TestStateIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		more := f
		switch rapid.IntRange(0, 7).Draw(t, "fact") {
		case 0:
			more.Paused = true
		case 1:
			more.Unavailable = true
		case 2:
			more.Unconfigured = true
		case 3:
			more.Unclaimable = true
		case 4:
			more.Time = max(more.Time, rapid.SampledFrom([]Time{Ahead, Never}).Draw(t, "later"))
		case 5:
			more.Earlier = true
		case 6:
			more.Claimed = true
		default:
			more.EarlierDeferred = true
		}
		if State(&more) == outbox.StateDue {
			require.Equal(t, outbox.StateDue, State(&f))
		}
	})
}
