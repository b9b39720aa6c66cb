package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// diagnose returns the findings as text, refusals with an exclamation mark in front. Servers of
// tests save themselves the wait for the disk; that is left out.
func diagnose(t *testing.T, store *Store) []string {
	t.Helper()
	d, err := store.Diagnose(t.Context())
	require.NoError(t, err)
	return texts(&d)
}

func texts(d *admin.Diagnosis) []string {
	found := []string{}
	for _, finding := range d.Findings {
		mark := ""
		if finding.Refused {
			mark = "!"
		}
		if finding.Topic != "durability" && !strings.HasPrefix(finding.Message, "autovacuum is off on this server") {
			found = append(found, mark+finding.Topic+": "+finding.Message)
		}
	}
	return found
}

// TestDiagnoseSession: what a session inherits from its role, database or server.
func TestDiagnoseSession(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	for _, c := range []struct{ name, dsn, want string }{
		{"nothing", dsn, ""},
		{"isolation", with(t, dsn, "default_transaction_isolation", "serializable"), `isolation: default_transaction_isolation is "serializable"`},
		{"read-only", with(t, dsn, "default_transaction_read_only", "on"), "!read-only: default_transaction_read_only is on"},
	} {
		got := diagnose(t, openStore(t, c.dsn, "outbox"))
		if c.want == "" {
			assert.Empty(t, got, c.name)
			continue
		}
		require.Len(t, got, 1, c.name)
		assert.Contains(t, got[0], c.want)
	}
	d, err := openStore(t, with(t, dsn, "synchronous_commit", "off"), "outbox").Diagnose(t.Context())
	require.NoError(t, err)
	assert.Contains(t, d.Settings, admin.Setting{Name: "synchronous_commit", Value: "off"})
	assert.Contains(t, messages(&d), "synchronous_commit is off")
}

func messages(d *admin.Diagnosis) string {
	var all strings.Builder
	for _, finding := range d.Findings {
		all.WriteString(finding.Message + "\n")
	}
	return all.String()
}

// TestDiagnoseTables: what an operator has done to the tables.
func TestDiagnoseTables(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	run := func(text string) {
		_, err := store.pool.Exec(t.Context(), text)
		require.NoError(t, err, text)
	}
	require.Empty(t, diagnose(t, store))
	// What is the owner's business.
	for _, text := range []string{
		"ALTER TABLE outbox ADD COLUMN note text NOT NULL DEFAULT ''", "ALTER TABLE outbox ADD COLUMN remark text",
		"CREATE INDEX harmless ON outbox (created_at) WHERE note <> ''", "CREATE INDEX elsewhere ON outbox_key_blocks (since)",
	} {
		run(text)
	}
	require.Empty(t, diagnose(t, store))

	// What is not.
	for _, text := range []string{
		"ALTER TABLE outbox_key_blocks SET (autovacuum_enabled = off)", "ALTER TABLE outbox ADD COLUMN author text NOT NULL",
		"CREATE INDEX by_status ON outbox (status)", "CREATE INDEX by_worker ON outbox (note) INCLUDE (locked_by)",
		"CREATE INDEX failed ON outbox (created_at) WHERE status = 'failed'", "CREATE INDEX tries ON outbox ((attempts + crashes))",
		"ALTER TABLE outbox ADD CONSTRAINT one_token UNIQUE (lock_token, id)",
	} {
		run(text)
	}
	got := diagnose(t, store)
	wants := []string{
		"autovacuum: autovacuum is off for outbox_key_blocks, so claims get slower and slower: ALTER TABLE outbox_key_blocks RESET (autovacuum_enabled)",
		"column: column author is not ours",
		"index: index by_status is not ours", "index: index by_worker", "index: index failed", "index: index one_token", "index: index tries",
	}
	require.Len(t, got, len(wants), "%q", got)
	for i, want := range wants {
		assert.Contains(t, got[i], want)
	}
	require.NoError(t, store.Check(t.Context()), "none of it is a wrong schema")
}

// TestDiagnoseRole: what a role may not do, or see.
func TestDiagnoseRole(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	role := relayRole(t, store)
	relay := openStore(t, with(t, dsn, "role", role), "outbox")
	require.Empty(t, diagnose(t, relay))
	for _, text := range []string{"REVOKE INSERT, DELETE ON outbox_key_blocks FROM " + role, "REVOKE UPDATE ON outbox FROM " + role, "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY"} {
		_, err := store.pool.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	got := diagnose(t, relay)
	require.Len(t, got, 2)
	assert.Contains(t, got[0], "row security: row level security is active on outbox:")
	assert.Contains(t, got[1], "GRANT UPDATE ON outbox, INSERT ON outbox_key_blocks, DELETE ON outbox_key_blocks")
	require.Empty(t, diagnose(t, store), "the owner sees and does it all")
}

func TestDiagnoseClock(t *testing.T) {
	t.Parallel()
	store := openStore(t, testenv.Postgres(t), "outbox")
	d, err := store.Diagnose(t.Context())
	require.NoError(t, err)
	assert.Less(t, d.ClockOffset.Abs(), 30*time.Second)
	assert.Positive(t, d.ClockError)
	assert.Regexp(t, `^PostgreSQL \d+`, d.Server)
	store.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	got := diagnose(t, store)
	require.Len(t, got, 1)
	assert.Regexp(t, `^clock: the database's clock is (2h0m0s|1h59m\S+) behind this machine's`, got[0])
}

// What cannot be had by a test: other servers.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := settings{version: "14.0", number: 140000, readOnly: "off", isolation: "read committed", synchronousCommit: "on", fsync: "on", fullPageWrites: "on", autovacuum: "on"}
	for _, c := range []struct {
		name   string
		change func(*settings)
		want   admin.Finding
	}{
		{"good", func(*settings) {}, admin.Finding{}},
		{"old", func(f *settings) { f.version, f.number = "13.4", 130004 }, admin.Finding{Refused: true, Topic: "version", Message: "PostgreSQL 13.4 is too old"}},
		{"replica", func(f *settings) { f.replica = true; f.readOnly = "on" }, admin.Finding{Refused: true, Topic: "read-only", Message: "point the relay at the primary"}},
		{"remote", func(f *settings) { f.synchronousCommit = "remote_write" }, admin.Finding{}},
		{"fsync", func(f *settings) { f.fsync = "off" }, admin.Finding{Topic: "durability", Message: "fsync is off"}},
		{"full_page_writes", func(f *settings) { f.fullPageWrites = "off" }, admin.Finding{Topic: "durability", Message: "full_page_writes is off"}},
		{"autovacuum", func(f *settings) { f.autovacuum = "off" }, admin.Finding{Topic: "autovacuum", Message: "off on this server"}},
	} {
		found := good
		c.change(&found)
		var d admin.Diagnosis
		found.judge(&d)
		if c.want.Topic == "" {
			assert.Empty(t, d.Findings, c.name)
			continue
		}
		require.Len(t, d.Findings, 1, c.name)
		assert.Contains(t, d.Findings[0].Message, c.want.Message, c.name)
		d.Findings[0].Message = c.want.Message
		assert.Equal(t, c.want, d.Findings[0], c.name)
	}
}
