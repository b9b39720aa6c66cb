package postgres

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// newRole makes a role for this test with some rights. The server forgets it afterwards.
func newRole(t *testing.T, owner *Store, grants ...string) string {
	t.Helper()
	role := "fanout_role_" + strings.ToLower(rand.Text()[:8])
	run := func(text string) {
		_, err := owner.pool.Exec(context.WithoutCancel(t.Context()), text)
		require.NoError(t, err, text)
	}
	run("CREATE ROLE " + role)
	t.Cleanup(func() { run("DROP OWNED BY " + role); run("DROP ROLE " + role) })
	for _, grant := range grants {
		run("GRANT " + grant + " TO " + role)
	}
	return role
}

// relayRole may read and write the tables of the outbox, and nothing else.
func relayRole(t *testing.T, owner *Store) string {
	t.Helper()
	want, err := owner.wanted()
	require.NoError(t, err)
	return newRole(t, owner, "SELECT, INSERT, UPDATE, DELETE ON "+strings.Join(want.Tables(), ", "))
}

// TestRoles: the rights that docs/operations.md names are enough.
func TestRoles(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	owner := openStore(t, dsn, "outbox_messages")
	_, err := owner.Migrate(t.Context())
	require.NoError(t, err)

	writer := openDB(t, with(t, dsn, "role", newRole(t, owner, "INSERT, SELECT (message_id, target_broker) ON outbox_messages")))
	inserter, err := outbox.NewInserter(outbox.Postgres, "outbox_messages")
	require.NoError(t, err)
	rows := []outbox.Row{{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", OrderingKey: "k"}, {MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", OrderingKey: "k"}}
	require.NoError(t, inserter.LockKeys(t.Context(), writer, rows))
	require.NoError(t, inserter.Insert(t.Context(), writer, rows))
	require.NoError(t, inserter.InsertMissing(t.Context(), writer, rows))
	_, err = writer.ExecContext(t.Context(), "SELECT payload FROM outbox_messages")
	require.ErrorContains(t, err, "permission denied")

	relay := openStore(t, with(t, dsn, "role", relayRole(t, owner)), "outbox_messages")
	require.NoError(t, relay.Check(t.Context()))
	ready, err := relay.Ready(t.Context(), "b")
	require.NoError(t, err)
	claim := &outbox.Claim{Broker: "b", Lane: ready.Lanes[0], Limit: 1, Window: 1, Lease: time.Hour, Worker: "w", Wake: true}
	claimed, err := relay.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, claimed.Batch.Messages, 1)
	retry := outbox.Outcome{ID: claimed.Batch.Messages[0].ID, Status: outbox.StatusFailed, Delay: time.Hour, Spent: true}
	_, err = relay.Exchange(t.Context(), &outbox.Settlement{Lease: claimed.Batch.Lease, Other: []outbox.Outcome{retry}}, nil)
	require.NoError(t, err)
	parked, err := relay.Park(t.Context(), claim)
	require.NoError(t, err)
	assert.NotZero(t, parked)
	_, err = relay.Purge(t.Context(), outbox.PurgeRequest{Broker: "b", Status: outbox.StatusPublished, Limit: 1})
	require.NoError(t, err)
	_, err = relay.Exclusive(t.Context(), "purge", func(context.Context) error { return nil })
	require.NoError(t, err)
	_, err = relay.Requeue(t.Context(), outbox.Filter{Broker: "b"}, 10)
	require.NoError(t, err)
	require.NoError(t, relay.Heartbeat(t.Context(), outbox.Instance{ID: uuid.New()}))
	_, err = relay.Counts(t.Context())
	require.NoError(t, err)
	_, err = relay.Migrate(t.Context())
	require.ErrorContains(t, err, "permission denied")
}
