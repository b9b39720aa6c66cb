package outbox

import (
	"context"
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
	// StartedAt and SeenAt by the database's clock; set by the store.
	StartedAt, SeenAt time.Time
	// Work is what its workers had in hand when it was last seen.
	Work []Work
}

// Work is one batch in a worker's hands.
type Work struct {
	Worker string    `json:"worker"`
	Broker string    `json:"broker"`
	Lane   int       `json:"lane"`
	Rows   int       `json:"rows"`
	Since  time.Time `json:"since"`
}

// A Registry knows the processes that run a relay on one database.
type Registry interface {
	// Heartbeat enters an instance, or says that it is still there and on what it works.
	Heartbeat(ctx context.Context, instance Instance) error
	// Leave removes an instance that stops.
	Leave(ctx context.Context, id uuid.UUID) error
	// Instances lists all of them, oldest first. Those not seen for a day are removed.
	Instances(ctx context.Context) ([]Instance, error)
}
