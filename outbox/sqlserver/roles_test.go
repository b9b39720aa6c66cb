package sqlserver

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// newUser makes a login and its user with some rights, and returns the DSN with which it connects.
// Where the owner may not make logins, the test is skipped.
func newUser(t *testing.T, b *bench, grants ...string) (dsn string) {
	t.Helper()
	server := testenv.SQLServer(t)
	name, password := "fanout_test_"+strings.ToLower(rand.Text()[:8]), "Fanout-1-"+rand.Text()
	_, err := b.outside.ExecContext(t.Context(), "CREATE LOGIN "+name+" WITH PASSWORD = '"+password+"', CHECK_POLICY = OFF")
	if numbered(err, 15247, 5001) { // no permission; only in the database master
		t.Skipf("NOT TESTED with users of few rights: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { // the server needs a moment to see that its connections are closed
			_, err := b.outside.ExecContext(context.WithoutCancel(t.Context()), "DROP LOGIN "+name)
			return err == nil
		}, 30*time.Second, 100*time.Millisecond)
	})
	execute(t, b.outside, "CREATE USER "+name+" FOR LOGIN "+name)
	t.Cleanup(func() { execute(t, b.outside, "DROP USER "+name) })
	for _, grant := range grants {
		execute(t, b.outside, "GRANT "+grant+" TO "+name)
	}
	u, err := url.Parse(server)
	require.NoError(t, err)
	u.User = url.UserPassword(name, password)
	return u.String()
}

// The rights that docs/operations.md names are enough.
func TestRoles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	writer := openDB(t, newUser(t, b, "INSERT ON "+b.table, "SELECT ON "+b.table+" (message_id, target_broker)"), "")
	inserter, err := outbox.NewInserter(outbox.SQLServer, b.table)
	require.NoError(t, err)
	rows := []outbox.Row{
		{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", OrderingKey: "k", Payload: []byte("{}")},
		{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", OrderingKey: "k", Payload: []byte("{}")},
	}
	tx, err := writer.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, inserter.LockKeys(t.Context(), tx, rows))
	require.NoError(t, inserter.Insert(t.Context(), tx, rows))
	require.NoError(t, inserter.InsertMissing(t.Context(), tx, rows))
	there, err := inserter.Written(t.Context(), tx, []uuid.UUID{rows[0].MessageID})
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{rows[0].MessageID}, there)
	require.NoError(t, tx.Commit())
	_, err = writer.ExecContext(t.Context(), "SELECT payload FROM "+b.table)
	require.True(t, numbered(err, permissionDenied, 230), "%v", err)

	want, err := b.wanted()
	require.NoError(t, err)
	var grants []string
	for _, table := range want.Tables() {
		grants = append(grants, "SELECT, INSERT, UPDATE, DELETE ON "+table)
	}
	relay := newStore(t, openDB(t, newUser(t, b, grants...), ""), b.table)
	require.NoError(t, relay.Check(t.Context()))
	ready, err := relay.Ready(t.Context(), "b", 0)
	require.NoError(t, err)
	require.NotEmpty(t, ready.Shards)
	claim := &driver.Claim{Broker: "b", Shard: ready.Shards[0], Limit: 1, Window: 1, Lease: time.Hour, Worker: "w", Wake: true}
	claimed, err := relay.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, claimed.Batch.Messages, 1)
	_, err = relay.Renew(t.Context(), claimed.Batch.Lease)
	require.NoError(t, err)
	retry := driver.Outcome{ID: claimed.Batch.Messages[0].ID, Status: outbox.StatusFailed, Delay: time.Hour, Spent: true}
	_, err = relay.Exchange(t.Context(), &driver.Completion{Lease: claimed.Batch.Lease, Other: []driver.Outcome{retry}}, nil)
	require.NoError(t, err)
	deferred, err := relay.Defer(t.Context(), claim)
	require.NoError(t, err)
	assert.NotZero(t, deferred)
	_, err = relay.Purge(t.Context(), admin.PurgeRequest{Broker: "b", Status: outbox.StatusPublished, Limit: 1})
	require.NoError(t, err)
	_, err = relay.Exclusive(t.Context(), "purge", func(context.Context) error { return nil })
	require.NoError(t, err)
	_, err = relay.Requeue(t.Context(), admin.Filter{Broker: "b"}, 10)
	require.NoError(t, err)
	require.NoError(t, relay.Heartbeat(t.Context(), admin.Instance{ID: uuid.New()}))
	_, err = relay.Counts(t.Context())
	require.NoError(t, err)
	overview, err := relay.Overview(t.Context(), 10)
	require.NoError(t, err)
	assert.Len(t, overview, 1)
	_, err = relay.List(t.Context(), admin.ListRequest{Broker: "b", Status: outbox.StatusPending, Filter: admin.Filter{Key: "k"}, Limit: 1, Scan: 1})
	require.NoError(t, err)
	_, err = relay.KeyBlocks(t.Context(), "b", 1, 1)
	require.NoError(t, err)
	id, err := relay.BeginAudit(t.Context(), admin.AuditEntry{Actor: "a", Via: "go", Action: "requeue"})
	require.NoError(t, err)
	require.NoError(t, relay.EndAudit(t.Context(), id, 1, ""))
}
