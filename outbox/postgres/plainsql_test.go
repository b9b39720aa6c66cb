package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// The statement of docs/plain-sql.md unblocks a key: its next message can be claimed.
func TestUnblockByHand(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(testenv.PageCode(t, "plain-sql.md"), "```sql\nUPDATE outbox_messages_key_blocks SET")
	require.True(t, found)
	statement, _, _ := strings.Cut("UPDATE outbox_messages_key_blocks SET"+rest, "```")

	dsn, store := newStage(t)
	db := openDB(t, dsn)
	inserter, err := outbox.NewInserter(outbox.Postgres, "outbox_messages")
	require.NoError(t, err)
	rows := make([]outbox.Row, 2)
	for i := range rows {
		rows[i] = outbox.Row{
			MessageID: uuid.New(), TargetBroker: "partner", Stream: "s", Type: "t", OrderingKey: "ordering::order-42", Payload: []byte("{}"),
		}
	}
	require.NoError(t, inserter.Insert(t.Context(), db, rows))
	ready, err := store.Ready(t.Context(), "partner", 0)
	require.NoError(t, err)
	claim := func(limit int) driver.Batch {
		t.Helper()
		claimed, err := store.Exchange(t.Context(), nil, &driver.Claim{
			Broker: "partner", Shard: ready.Shards[0], Limit: limit, Window: 10, Lease: time.Hour, Worker: "w", Wake: true,
		})
		require.NoError(t, err)
		return claimed.Batch
	}
	head := claim(1)
	require.Len(t, head.Messages, 1)
	_, err = store.Exchange(t.Context(), &driver.Completion{
		Lease: head.Lease, BlockAbandoned: true,
		Other: []driver.Outcome{{ID: head.Messages[0].ID, Status: outbox.StatusAbandoned, Spent: true}},
	}, nil)
	require.NoError(t, err)
	require.Empty(t, claim(2).Messages, "the key is blocked")

	_, err = db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	require.Len(t, claim(2).Messages, 1)
}
