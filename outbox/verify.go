package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// A Verifier is a Store that can tell which of the rows that were born claimed may be published.
type Verifier interface {
	// Verify looks at rows of which this process has copies. It reads in one snapshot, taken after the call, everything that was
	// committed before, and takes no lock that claims wait for. Of the rows that are still in processing under the token it
	// returns one entry each; the others have gone. A row is clear when
	//
	//   - the broker is not paused, the lease has not run out, and the row is in the shard that was asked about;
	//   - and, unless Unordered or without an ordering key: no other open row of its key stands before it, in whatever shard,
	//     but for those that are clear, too; no block holds the key back; and no more than Backlog other open rows stand in the
	//     shard before the last one of the returned.
	Verify(ctx context.Context, verification *Verification) ([]HandedRow, error)
}

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
