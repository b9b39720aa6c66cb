package driver

// Readiness is what a poll found.
type Readiness struct {
	// Shards that have work; none while the broker is paused.
	Shards []int
	// Paused is true while the broker is paused; see Pauser.
	Paused bool
}

// PausedShard is what the SQL of a store returns in place of shards while the broker is paused.
const PausedShard = -1

// NewReadiness reads the shards as the SQL of a store returns them.
func NewReadiness(shards []int) Readiness {
	if len(shards) == 1 && shards[0] == PausedShard {
		return Readiness{Paused: true}
	}
	return Readiness{Shards: shards}
}
