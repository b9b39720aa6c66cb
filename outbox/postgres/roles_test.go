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

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// documentedRole makes a role with the grants that docs/operations.md gives to the one of that name
// there, for the tables of a store in the schema public. The server forgets it afterwards.
func documentedRole(t *testing.T, owner *Store, documented string) string {
	t.Helper()
	_, rest, found := strings.Cut(testenv.PageCode(t, "operations.md"), "```sql\n-- migrates")
	require.True(t, found)
	block, _, _ := strings.Cut(rest, "```")

	role := "fanout_role_" + strings.ToLower(rand.Text()[:8])
	run := func(text string) {
		_, err := owner.pool.Exec(context.WithoutCancel(t.Context()), text)
		require.NoError(t, err, text)
	}
	run("CREATE ROLE " + role)
	t.Cleanup(func() { run("DROP OWNED BY " + role); run("DROP ROLE " + role) })
	names := strings.NewReplacer("app.outbox_messages", owner.table, "SCHEMA app", "SCHEMA public", "TO "+documented, "TO "+role)
	granted := 0
	for statement := range strings.SplitSeq(block, ";") {
		of := strings.HasSuffix(statement, "TO "+documented) || strings.Contains(statement, "TO "+documented+" ")
		everybody := strings.Contains(statement, "SECURITY") || strings.Contains(statement, "POLICY everybody")
		if of || everybody && documented == "fanout_operator" {
			run(names.Replace(statement))
			granted++
		}
	}
	require.Positive(t, granted, documented)
	return role
}

// relayRole may do what a relay does, and nothing else.
func relayRole(t *testing.T, owner *Store) string {
	t.Helper()
	return documentedRole(t, owner, "fanout_relay")
}

// stage is a table with its owner.
func newStage(t *testing.T) (dsn string, owner *Store) {
	t.Helper()
	dsn = testenv.Postgres(t)
	owner = openStore(t, dsn, "outbox_messages")
	_, err := owner.Migrate(t.Context())
	require.NoError(t, err)
	_, err = owner.pool.Exec(t.Context(), "REVOKE CREATE ON SCHEMA public FROM PUBLIC") // as it is from PostgreSQL 15 on
	require.NoError(t, err)
	return dsn, owner
}

// refused wants each statement to be refused to a role for want of rights.
func refused(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	db := openDB(t, dsn)
	for _, text := range statements {
		_, err := db.ExecContext(t.Context(), text)
		require.Error(t, err, text)
		assert.Regexp(t, "permission denied|must be owner", err.Error(), text)
	}
}

// What no role but the owner may do.
var ownersWork = []string{
	"ALTER TABLE outbox_messages ADD COLUMN x text", "DROP TABLE outbox_messages", "TRUNCATE outbox_messages", "CREATE INDEX ON outbox_messages (type)",
	"CREATE TRIGGER x BEFORE INSERT ON outbox_messages FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
	"INSERT INTO outbox_messages_migrations (version, name) VALUES (99, 'x')", "DROP TABLE outbox_messages_pauses",
}

func someRows(n int) []outbox.Row {
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", OrderingKey: "k", Payload: []byte("{}")}
	}
	return rows
}

func TestRolesWriter(t *testing.T) {
	t.Parallel()
	dsn, owner := newStage(t)
	dsn = with(t, dsn, "role", documentedRole(t, owner, "shop"))
	writer := openDB(t, dsn)
	inserter, err := outbox.NewInserter(outbox.Postgres, "outbox_messages")
	require.NoError(t, err)
	rows := someRows(2)
	require.NoError(t, inserter.LockKeys(t.Context(), writer, rows))
	require.NoError(t, inserter.Insert(t.Context(), writer, rows))
	require.NoError(t, inserter.InsertMissing(t.Context(), writer, rows))
	there, err := inserter.Written(t.Context(), writer, []uuid.UUID{rows[0].MessageID, uuid.New()})
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{rows[0].MessageID}, there)

	for _, column := range []string{"id", "created_at", "deferred", "isolated", "crashes", "attempts", "locked_until", "published_at", "finished_at", "lock_token", "status", "locked_by", "last_error"} {
		refused(t, dsn, "INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, "+column+") VALUES (gen_random_uuid(), 'b', 's', 't', '', NULL)")
	}
	refused(t, dsn, append([]string{
		"SELECT payload FROM outbox_messages", "SELECT headers FROM outbox_messages", "SELECT status FROM outbox_messages", "SELECT * FROM outbox_messages",
		"UPDATE outbox_messages SET status = 'published'", "UPDATE outbox_messages SET payload = ''", "DELETE FROM outbox_messages",
		"INSERT INTO outbox_messages_pauses (target_broker) VALUES ('b')", "DELETE FROM outbox_messages_pauses", "SELECT * FROM outbox_messages_key_blocks",
		"UPDATE outbox_messages_shards SET version = 0", "SELECT * FROM outbox_messages_instances", "SELECT * FROM outbox_messages_migrations",
	}, ownersWork...)...)
}

func TestRolesRelay(t *testing.T) {
	t.Parallel()
	dsn, owner := newStage(t)
	writeRows(t, dsn, 2)
	dsn = with(t, dsn, "role", relayRole(t, owner))
	relay := openStore(t, dsn, "outbox_messages")
	require.NoError(t, relay.Check(t.Context()))
	require.Empty(t, diagnose(t, relay), "the diagnosis misses no right")
	ready, err := relay.Ready(t.Context(), "b", 0)
	require.NoError(t, err)
	claim := &driver.Claim{Broker: "b", Shard: ready.Shards[0], Limit: 1, Window: 1, Lease: time.Hour, Worker: "w", Wake: true}
	claimed, err := relay.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, claimed.Batch.Messages, 1)
	retry := driver.Outcome{ID: claimed.Batch.Messages[0].ID, Status: outbox.StatusFailed, Delay: time.Hour, Spent: true}
	_, err = relay.Exchange(t.Context(), &driver.Completion{Lease: claimed.Batch.Lease, Other: []driver.Outcome{retry}}, nil)
	require.NoError(t, err)
	deferred, err := relay.Defer(t.Context(), claim)
	require.NoError(t, err)
	assert.NotZero(t, deferred)
	for name, allowed := range map[string]func() error{
		"purge": func() error {
			_, err := relay.Purge(t.Context(), admin.PurgeRequest{Broker: "b", Status: outbox.StatusPublished, Limit: 1})
			return err
		},
		"exclusive": func() error {
			_, err := relay.Exclusive(t.Context(), "purge", func(context.Context) error { return nil })
			return err
		},
		"heartbeat": func() error { return relay.Heartbeat(t.Context(), admin.Instance{ID: uuid.New()}) },
		"instances": func() error { _, err := relay.Instances(t.Context()); return err },
		"counts":    func() error { _, err := relay.Counts(t.Context()); return err },
		"backlog":   func() error { _, err := relay.Backlog(t.Context()); return err },
		"pauses":    func() error { _, err := relay.Pauses(t.Context()); return err },
	} {
		require.NoError(t, allowed(), name)
	}

	browses(t, relay, true)
	_, err = relay.BeginAudit(t.Context(), admin.AuditEntry{Actor: "me", Via: "http", Action: "pause", Broker: "b"})
	require.ErrorContains(t, err, "docs/operations.md lists what the roles")
	_, err = relay.Migrate(t.Context())
	require.ErrorContains(t, err, "permission denied")
	_, err = relay.Pause(t.Context(), admin.Pause{Broker: "b"})
	require.ErrorContains(t, err, "docs/operations.md lists what the roles")
	refused(t, dsn, append([]string{
		"INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload) VALUES (gen_random_uuid(), 'b', 's', 't', '')",
		"INSERT INTO outbox_messages_pauses (target_broker) VALUES ('b')", "DELETE FROM outbox_messages_pauses", "DELETE FROM outbox_messages_shards",
		"INSERT INTO outbox_messages_audit (actor, via, action) VALUES ('', '', '')", "DELETE FROM outbox_messages_audit",
	}, ownersWork...)...)
}

func TestRolesOperator(t *testing.T) {
	t.Parallel()
	dsn, owner := newStage(t)
	writeRows(t, dsn, 4)
	_, err := owner.pool.Exec(t.Context(), `UPDATE outbox_messages SET status = 'published', published_at = now() - interval '1 day', finished_at = now() - interval '1 day'
	 WHERE id = (SELECT min(id) FROM outbox_messages)`)
	require.NoError(t, err)
	require.NoError(t, owner.Heartbeat(t.Context(), admin.Instance{ID: uuid.New()}))
	owners := dsn
	dsn = with(t, dsn, "role", documentedRole(t, owner, "fanout_operator"))
	operator := openStore(t, dsn, "outbox_messages")
	all := admin.Filter{Broker: "b", Type: "t*", ErrorClass: ""}
	for _, step := range []struct {
		name string
		do   func() (int, error)
		want int
	}{
		{"matches", func() (int, error) { return operator.Matches(t.Context(), all, 10) }, 4},
		{"replay", func() (int, error) { return operator.Replay(t.Context(), all, 10) }, 1},
		{"abandon", func() (int, error) { return operator.Abandon(t.Context(), all, "why", 10) }, 4},
		{"requeue", func() (int, error) {
			return operator.Requeue(t.Context(), admin.Filter{ErrorClass: admin.ClassOperator}, 10)
		}, 4},
		{"abandon again", func() (int, error) { return operator.Abandon(t.Context(), all, "", 10) }, 4},
		{"purge", func() (int, error) {
			return operator.Purge(t.Context(), admin.PurgeRequest{Broker: "b", Status: outbox.StatusAbandoned, Limit: 10})
		}, 4},
	} {
		got, err := step.do()
		require.NoError(t, err, step.name)
		assert.Equal(t, step.want, got, step.name)
	}
	_, err = operator.UnblockKey(t.Context(), "b", "k")
	require.NoError(t, err)
	_, err = operator.BlockedKeys(t.Context(), "", 10)
	require.NoError(t, err)
	paused, err := operator.Pause(t.Context(), admin.Pause{Broker: "b", By: "me", Reason: "why"})
	require.NoError(t, err)
	assert.True(t, paused)
	_, err = operator.Pauses(t.Context())
	require.NoError(t, err)
	resumed, err := operator.Resume(t.Context(), "b")
	require.NoError(t, err)
	assert.True(t, resumed)
	_, err = operator.Counts(t.Context())
	require.NoError(t, err)
	_, err = operator.Backlog(t.Context())
	require.NoError(t, err)
	instances, err := operator.Instances(t.Context())
	require.NoError(t, err)
	assert.Len(t, instances, 1)
	require.NoError(t, operator.Check(t.Context()))
	id, err := operator.BeginAudit(t.Context(), admin.AuditEntry{Actor: "me", Via: "cli", Action: "pause", Broker: "b"})
	require.NoError(t, err)
	db := openDB(t, dsn)
	changed := func(statement string) int64 {
		t.Helper()
		result, err := db.ExecContext(t.Context(), statement, id)
		require.NoError(t, err, statement)
		n, err := result.RowsAffected()
		require.NoError(t, err)
		return n
	}
	for _, at := range []string{"'2020-01-01'", "now() + interval '1 day'", "NULL"} {
		_, err = db.ExecContext(t.Context(), "UPDATE outbox_messages_audit SET ended_at = "+at+" WHERE id = $1", id)
		require.ErrorContains(t, err, "row-level security policy", "no other time of an end: %s", at)
	}
	require.NoError(t, operator.EndAudit(t.Context(), id, 1, ""))
	assert.Zero(t, changed("UPDATE outbox_messages_audit SET row_count = 0 WHERE id = $1"), "what has ended stays")
	assert.Zero(t, changed("UPDATE outbox_messages_audit SET failure = 'no', ended_at = now() WHERE id = $1"))
	entries, err := operator.Audit(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.EqualValues(t, 1, entries[0].Rows)
	refused(t, dsn, "INSERT INTO outbox_messages_audit (actor, via, action, started_at) VALUES ('', '', '', '2020-01-01')",
		"INSERT INTO outbox_messages_audit (actor, via, action, row_count) VALUES ('', '', '', 7)",
		"INSERT INTO outbox_messages_audit (actor, via, action, ended_at) VALUES ('', '', '', now())")

	writeRows(t, owners, 1)
	browses(t, operator, false)
	_, err = operator.Exchange(t.Context(), nil, &driver.Claim{Broker: "b", Limit: 1, Window: 1, Lease: time.Hour, Worker: "w"})
	require.ErrorContains(t, err, "permission denied", "it can claim nothing")
	refused(t, dsn, append([]string{
		"SELECT payload FROM outbox_messages", "SELECT headers FROM outbox_messages", "SELECT * FROM outbox_messages",
		"UPDATE outbox_messages SET payload = ''", "UPDATE outbox_messages SET stream = 's'", "UPDATE outbox_messages SET target_broker = 'c'",
		"UPDATE outbox_messages SET message_id = gen_random_uuid()", "UPDATE outbox_messages SET headers = '{}'",
		"INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload) VALUES (gen_random_uuid(), 'b', 's', 't', '')",
		"INSERT INTO outbox_messages_instances (instance_id, name, host, pid, version, work) VALUES (gen_random_uuid(), '', '', 1, '', '')",
		"INSERT INTO outbox_messages_key_blocks SELECT * FROM outbox_messages_key_blocks",
		"UPDATE outbox_messages_audit SET actor = ''", "UPDATE outbox_messages_audit SET started_at = now()", "DELETE FROM outbox_messages_audit",
	}, ownersWork...)...)
}

// browses looks at all there is to see; not everybody sees what messages carry.
func browses(t *testing.T, store *Store, content bool) {
	t.Helper()
	overview, err := store.Overview(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, overview, 1)
	var rows []admin.Record
	for _, status := range outbox.Statuses() {
		list, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: status, Limit: 10, Scan: 10})
		require.NoError(t, err)
		rows = append(rows, list.Records...)
	}
	require.NotEmpty(t, rows)
	records, err := store.Message(t.Context(), rows[0].MessageID)
	require.NoError(t, err)
	require.Len(t, records, 1)
	assert.Equal(t, content, rows[0].PayloadBytes > 0)
	assert.Equal(t, content, records[0].PayloadBytes > 0)
	assert.Equal(t, content, len(records[0].Payload) > 0)
	same, err := store.Event(t.Context(), rows[0].MessageID)
	require.NoError(t, err)
	assert.Equal(t, records, same)
	_, err = store.KeyBlocks(t.Context(), "b", 10, 10)
	require.NoError(t, err)
	_, err = store.Audit(t.Context(), 0, 10)
	require.NoError(t, err)
}

// writeRows writes rows as the owner.
func writeRows(t *testing.T, dsn string, n int) {
	t.Helper()
	inserter, err := outbox.NewInserter(outbox.Postgres, "outbox_messages")
	require.NoError(t, err)
	require.NoError(t, inserter.Insert(t.Context(), openDB(t, dsn), someRows(n)))
}
