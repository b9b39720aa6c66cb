package driver

import (
	"time"

	"github.com/google/uuid"
)

// A Verification asks about rows of one shard.
type Verification struct {
	Broker string
	// Shard of all these rows, of ClassNormal.
	Shard int
	// Token under which the rows were inserted.
	Token uuid.UUID
	// MessageIDs of the rows.
	MessageIDs []uuid.UUID
	// Unordered switches ordering keys off.
	Unordered bool
	// Backlog is how many other open rows may stand before them.
	Backlog int
}

// A HandedRow is what the database says about a row that is still ours.
type HandedRow struct {
	ID                int64
	MessageID         uuid.UUID
	Shard             int
	Attempts, Crashes int
	CreatedAt         time.Time
	// Expired as in Message.
	Expired bool
	// Clear is true when the row may be published now.
	Clear bool
}
