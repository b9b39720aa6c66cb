package postgres

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// TestCheckByRelay: a role that may do no more than a relay does can check the schema, too.
func TestCheckByRelay(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	role := relayRole(t, store)
	relay := openStore(t, with(t, dsn, "role", role), "outbox")
	require.NoError(t, relay.Check(t.Context()))
	_, err = store.pool.Exec(t.Context(), "REVOKE ALL ON outbox_migrations FROM "+role)
	require.NoError(t, err)
	require.NoError(t, relay.Check(t.Context()))
	_, err = relay.pool.Exec(t.Context(), "SELECT FROM outbox_migrations")
	require.ErrorContains(t, err, "permission denied", "and cannot read the record of the steps")
	_, err = store.pool.Exec(t.Context(), "ALTER TABLE outbox ALTER COLUMN stream DROP NOT NULL")
	require.NoError(t, err)
	require.ErrorContains(t, relay.Check(t.Context()), "column stream: nullable is yes, want no")
}

// The check writes nothing, not even a temporary table: a session that may read only, of a role that
// may make none, can do it. Nor do settings that change how expressions are written down.
func TestCheckWritesNothing(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = store.pool.Exec(t.Context(), "DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$")
	require.NoError(t, err)
	dsn = with(t, with(t, dsn, "role", relayRole(t, store)), "default_transaction_read_only", "on")
	for name, value := range map[string]string{
		"quote_all_identifiers": "on", "DateStyle": "German", "search_path": "public, pg_catalog", "default_query_exec_mode": "simple_protocol",
	} {
		require.NoError(t, openStore(t, with(t, dsn, name, value), "outbox").Check(t.Context()), name)
	}
}

// The scratch tables are gone afterwards, and a role that may make none learns why.
func TestScratch(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	role := relayRole(t, store)
	for name, value := range map[string]string{
		"quote_all_identifiers": "on", "DateStyle": "German", "search_path": "public, pg_catalog", "default_query_exec_mode": "simple_protocol", "application_name": "relay",
	} {
		differences, err := openStore(t, with(t, with(t, dsn, "role", role), name, value), "outbox").CompareWithScratch(t.Context())
		require.NoError(t, err, name)
		assert.Empty(t, differences, name)
	}
	var left int
	require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relpersistence = 't'").Scan(&left))
	assert.Zero(t, left)
	_, err = store.pool.Exec(t.Context(), "DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$")
	require.NoError(t, err)
	_, err = openStore(t, with(t, dsn, "role", role), "outbox").CompareWithScratch(t.Context())
	require.ErrorContains(t, err, "the role needs TEMPORARY on the database")
}

// Rows are ordered by their id, so that a sequence which does not hand out ascending numbers in
// turn inverts the order of events. Each session takes a stock of its own where the sequence has a
// cache.
func TestCheckSequence(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	relay := openStore(t, with(t, dsn, "role", relayRole(t, store)), "outbox") // it may not use the sequence
	for _, c := range []struct{ change, back, want string }{
		{"SET CACHE 20", "SET CACHE 1", "by default, cache 20"},
		{"SET CYCLE", "SET NO CYCLE", "by default, cycle"},
		{"SET MINVALUE -1000 SET INCREMENT BY -1 SET MAXVALUE 1000", "SET INCREMENT BY 1 SET MINVALUE 1 SET MAXVALUE 9223372036854775807", "by default, increment -1"},
		{"SET CACHE 2 SET CYCLE SET INCREMENT BY -5 SET MINVALUE -5", "SET CACHE 1 SET NO CYCLE SET INCREMENT BY 1 SET MINVALUE 1", "by default, increment -5, cache 2, cycle"},
		{"SET INCREMENT BY 10", "SET INCREMENT BY 1", ""}, // gaps are harmless
	} {
		_, err := store.pool.Exec(t.Context(), "ALTER TABLE outbox ALTER COLUMN id "+c.change)
		require.NoError(t, err, c.change)
		for _, asked := range []*Store{store, relay} {
			err = asked.Check(t.Context())
			if c.want == "" {
				require.NoError(t, err, c.change)
				continue
			}
			var schema *admin.SchemaError
			require.ErrorAs(t, err, &schema, c.change)
			assert.Equal(t, []string{"column id: identity is " + c.want + ", want by default"}, schema.Differences)
		}
		_, err = store.pool.Exec(t.Context(), "ALTER TABLE outbox ALTER COLUMN id "+c.back)
		require.NoError(t, err, c.back)
	}
	// The audit is in no order that anything depends on.
	_, err = store.pool.Exec(t.Context(), "ALTER TABLE outbox_audit ALTER COLUMN id SET CACHE 20")
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()))
}
