package admin

import "time"

// Backlog is how far the delivery to one broker is behind.
type Backlog struct {
	Broker string
	// Lag is how long the first rows of its shards that are due ([outbox.StateDue]) have been waiting,
	// as a relay that keeps order sees them; 0 when nothing is due. Deferred rows count since they were
	// due. It is found out from the first 1,000 rows of each shard that are not deferred, and the first
	// 500 key blocks whose time has come, and 500 that are back in the way of claims. So there are
	// differences: of a deferred row whose block's time has come, no row of its key is looked for that
	// is not deferred and goes first; and rows of a broker that is not configured count as if it were,
	// so that Unknown and Lag together tell that they wait.
	Lag time.Duration
	// Unknown is true for a broker that the configuration does not have, where that is known: no
	// processor delivers its rows.
	Unknown bool
}
