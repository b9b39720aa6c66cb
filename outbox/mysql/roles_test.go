package mysql

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A writer with the rights of docs/operations.md does all that a writer does, and fills no column that
// is the relay's; and what has ended in the audit stays as it is, whoever may write there.
func TestRoles(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(testenv.PageCode(t, "operations.md"), "```mysql\n")
	require.True(t, found)
	block, _, _ := strings.Cut(rest, "\n```")
	dsn := testenv.MySQL(t)
	db := openDB(t, dsn)
	owner := newStore(t, db, "")
	_, err := owner.Migrate(t.Context())
	require.NoError(t, err)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	user, password := "fanout_"+strings.ToLower(rand.Text()[:12]), rand.Text()
	execute := func(text string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
	execute("CREATE USER " + user + " IDENTIFIED BY '" + password + "'")
	t.Cleanup(func() { _, _ = openDB(t, dsn).Exec("DROP USER " + user) }) //nolint:noctx // the test's context has ended
	for statement := range strings.SplitSeq(block, ";\n") {
		execute(strings.NewReplacer("app.", config.DBName+".", "TO shop", "TO "+user).Replace(statement))
	}

	config.User, config.Passwd = user, password
	writer := openDB(t, config.FormatDSN())
	inserter, err := outbox.NewInserter(outbox.MySQL, outbox.DefaultTable)
	require.NoError(t, err)
	rows := []outbox.Row{{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", OrderingKey: "k", Payload: []byte("{}")}}
	require.NoError(t, inserter.LockKeys(t.Context(), writer, rows))
	require.NoError(t, inserter.Insert(t.Context(), writer, rows))
	rows = append(rows, outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", Payload: []byte("{}")})
	require.NoError(t, inserter.InsertMissing(t.Context(), writer, rows))
	there, err := inserter.Written(t.Context(), writer, []uuid.UUID{rows[0].MessageID, uuid.New()})
	require.NoError(t, err)
	assert.Equal(t, []uuid.UUID{rows[0].MessageID}, there)
	refused := func(text string) {
		t.Helper()
		_, err := writer.ExecContext(t.Context(), text)
		require.ErrorContains(t, err, "denied", text)
	}
	for _, column := range []string{"id", "created_at", "deferred", "isolated", "crashes", "attempts", "locked_until", "finished_at", "lock_token", "status", "locked_by", "last_error"} {
		refused("INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, " + column + ") VALUES (UNHEX('" + strings.Repeat("01", 16) + "'), 'b', 's', 't', '', NULL)")
	}
	refused("SELECT payload FROM outbox_messages")
	refused("UPDATE outbox_messages SET payload = ''")
	refused("DELETE FROM outbox_messages")
	refused("SELECT actor FROM outbox_messages_audit")

	id, err := owner.BeginAudit(t.Context(), admin.AuditEntry{Actor: "me", Via: "cli", Action: "pause", Broker: "b"})
	require.NoError(t, err)
	require.NoError(t, owner.EndAudit(t.Context(), id, 1, ""))
	require.NoError(t, owner.EndAudit(t.Context(), id, 2, ""), "which changes nothing")
	_, err = db.ExecContext(t.Context(), "UPDATE outbox_messages_audit SET row_count = 0")
	require.ErrorContains(t, err, "stays as it is")
	require.NoError(t, owner.Check(t.Context()))
}
