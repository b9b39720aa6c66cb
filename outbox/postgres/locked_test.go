package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// Rows that stay locked are told, with whose session has locked them; what was completed before stands.
func TestLockedForLong(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "kept")
	store.patience = 0
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, fill("kept", 300))
	claim := &driver.Claim{Broker: "a", Limit: 5, Window: 5, Worker: "w", Lease: time.Minute}
	first, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, first.Batch.Messages, 5)
	completion := &driver.Completion{Lease: first.Batch.Lease}
	for i := range first.Batch.Messages {
		completion.Published = append(completion.Published, driver.Delivered{ID: first.Batch.Messages[i].ID})
	}
	exec(t, conn, "BEGIN")
	exec(t, conn, "SELECT FROM kept WHERE target_broker = 'a' AND shard = 0 AND status = 'pending' FOR UPDATE")
	next, err := store.Exchange(t.Context(), completion, claim)
	require.NoError(t, err)
	assert.Equal(t, &driver.Completed{}, next.Completed)
	assert.Empty(t, next.Batch.Messages)
	assert.Equal(t, 5, next.Batch.Locked)
	assert.Regexp(t, fmt.Sprintf(`^process %d, (application .*, )?in a transaction since 2`, conn.PgConn().PID()), next.Batch.LockedBy)
	claim.Window = 6 // so that it is decided first
	next, err = store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	assert.Empty(t, next.Batch.Messages)
	assert.Equal(t, 6, next.Batch.Locked)
	_, err = store.Renew(t.Context(), first.Batch.Lease) // of rows that are done
	require.NoError(t, err)
	exec(t, conn, "ROLLBACK")
	next, err = store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	assert.Len(t, next.Batch.Messages, 5)
}
