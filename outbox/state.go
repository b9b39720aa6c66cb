package outbox

import "slices"

// State says where an open row stands: whether a claim would take it, and if not, what it waits for.
// A row that is published or abandoned has no state. Each open row is in exactly one. The first of
// these that holds is its state, so that it names what has to happen first:
//
//	claimed → unconfigured → stranded → scheduled → blocked → behind → backoff → paused → unavailable → due
//
// Status says what has happened to a row, State what happens next.
type State string

// The states of an open row.
const (
	// StateDue: the next claim of its shard may take the row. Rows that stay due for long mean that
	// no relay claims them, or that relays are too slow: look at the lag, at `fanout status` for the
	// relays that run, and at the broker's latency.
	StateDue State = "due"
	// StateClaimed: a worker has the row under a lease that has not expired. Nothing is to be done:
	// a crashed worker's rows become due when the lease expires.
	StateClaimed State = "claimed"
	// StateBackoff: an attempt has failed, or found the destination unavailable, and the next one is
	// due at a time that lies ahead (locked_until). Read the row's last error; requeue the row to try
	// it at once.
	StateBackoff State = "backoff"
	// StateScheduled: the row is not to be sent before a time that lies ahead (available_at). Its
	// ordering key passes it. Requeue the row to send it at once.
	StateScheduled State = "scheduled"
	// StateBehind: another open row of its ordering key and priority class goes first: an earlier
	// one, or one that a worker has claimed. Nothing is to be done about this row; look at the state
	// of the one before it.
	StateBehind State = "behind"
	// StateBlocked: its ordering key waits for an operator, behind an abandoned row (on_abandon:
	// block). Requeue that row, or unblock the key.
	StateBlocked State = "blocked"
	// StatePaused: the row could be claimed, but its broker is paused. Resume the broker.
	StatePaused State = "paused"
	// StateUnavailable: the row could be claimed, but its broker or destination is unavailable and
	// its circuit breaker is open. Repair the broker; relays try it from time to time. A database
	// does not know of breakers, so that no store returns this state.
	StateUnavailable State = "unavailable"
	// StateUnconfigured: no relay delivers to the row's broker, since the configuration does not
	// have it. Add the broker to the configuration, or abandon the rows.
	StateUnconfigured State = "unconfigured"
	// StateStranded: nothing but a repair can make the row due: it is deferred and no key block
	// brings it back, its time or its lease never ends, or no relay claims from its shard. No action
	// of this module leaves a row like this, so it was changed by hand, or there is a defect:
	// report it. Requeue the row.
	StateStranded State = "stranded"
)

// States lists all states, in the order in which they are tested; see [State].
func States() []State {
	return []State{
		StateClaimed, StateUnconfigured, StateStranded, StateBlocked, StateBehind, StateBackoff, StateScheduled, StatePaused, StateUnavailable, StateDue,
	}
}

// Valid reports whether s is one of the ten states.
func (s State) Valid() bool { return slices.Contains(States(), s) }
