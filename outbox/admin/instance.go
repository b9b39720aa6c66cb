package admin

import (
	"time"

	"github.com/google/uuid"
)

// An Instance is one process that runs a relay.
type Instance struct {
	// ID is made anew at each start: two processes of the same name stay apart.
	ID uuid.UUID
	// Name, Host, PID and Version tell people which process it is.
	Name, Host string
	PID        int
	Version    string
	// StartedAt and SeenAt by the database's clock, or, where that is more than ten seconds from the clock
	// of whoever lists it, as that one has them; set by the store.
	StartedAt, SeenAt time.Time
	// Work is what its workers had claimed when it was last seen.
	Work []Work
	// Unavailable are the brokers and destinations whose circuit breakers were not closed then, of a
	// broker no more than 20 destinations.
	Unavailable []Unavailable
	// Unreadable says what is wrong with a row that was changed by hand: a column and its
	// fault. The fields that cannot be read are then zero. It is empty for a row that a process
	// wrote; set by the store.
	Unreadable string
}

// Unavailable is a broker, or one of its destinations, to which a relay sends nothing for the moment,
// but to try it.
type Unavailable struct {
	Broker string `json:"broker"`
	// Destination is a stream or topic; empty: the broker as a whole.
	Destination string `json:"destination,omitempty"`
}

// Work is one batch in a worker's hands.
type Work struct {
	Worker string    `json:"worker"`
	Broker string    `json:"broker"`
	Shard  int       `json:"shard"`
	Rows   int       `json:"rows"`
	Since  time.Time `json:"since"`
}
