package postgres

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck/schematest"
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
	// In other words, so that expressions are evaluated on every version.
	_, err = store.pool.Exec(t.Context(), `ALTER TABLE outbox
		DROP CONSTRAINT outbox_ordering_key, ADD CONSTRAINT outbox_ordering_key CHECK (octet_length(ordering_key) > 0)`)
	require.NoError(t, err)
	dsn = with(t, with(t, dsn, "role", relayRole(t, store)), "default_transaction_read_only", "on")
	for name, value := range map[string]string{
		"quote_all_identifiers": "on", "DateStyle": "German", "search_path": "public, pg_catalog", "default_query_exec_mode": "simple_protocol",
	} {
		require.NoError(t, openStore(t, with(t, dsn, name, value), "outbox").Check(t.Context()), name)
	}
}

// Functions that the table's owner has put into expressions are not called with the rights of whoever
// asks for the check, and what built-in ones do to the session is undone.
func TestCheckOfHostileOwner(t *testing.T) {
	t.Parallel()
	store := openStore(t, testenv.Postgres(t), "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	for _, statement := range []string{
		"CREATE SCHEMA e", "CREATE FUNCTION e.e1(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE 'called'; END $$",
		"CREATE FUNCTION public.sha256(bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE 'called'; END $$",
		"CREATE OPERATOR e.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)",
		"ALTER TABLE outbox DROP CONSTRAINT outbox_status, ADD CONSTRAINT outbox_status CHECK (e.e1(status))",
		"ALTER TABLE outbox DROP CONSTRAINT outbox_lease, ADD CONSTRAINT outbox_lease CHECK (public.sha256(payload) IS NOT NULL)",
		"ALTER TABLE outbox DROP CONSTRAINT outbox_ordering_key, ADD CONSTRAINT outbox_ordering_key CHECK (ordering_key OPERATOR(e.<>) '')",
		"ALTER TABLE outbox ALTER isolated SET DEFAULT set_config('application_name', 'hostile', false) IS NULL",
		"ALTER TABLE outbox ALTER deferred SET DEFAULT pg_notify('fanout', '') IS NULL",
	} {
		_, err := store.pool.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	require.NoError(t, store.conn(t.Context(), func(conn *pgx.Conn) error {
		err := store.check(t.Context(), conn)
		var schema *admin.SchemaError
		require.ErrorAs(t, err, &schema)
		require.Len(t, schema.Differences, 3, "%q", schema.Differences)
		for _, name := range []string{"ordering_key", "status", "lease"} {
			assert.Contains(t, strings.Join(schema.Differences, "\n"), "constraint outbox_"+name+": check is ")
		}
		for _, difference := range schema.Differences {
			assert.Contains(t, difference, "(it is not evaluated, because it refers to ")
		}
		var session string
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW application_name").Scan(&session))
		assert.Equal(t, "fanout", session)
		return nil
	}))
}

// A database in an encoding that lacks most characters is checked with those that it has.
func TestCheckOfEncoding(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	admin, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	database := pgx.Identifier{strings.TrimPrefix(address.Path, "/") + "_1"}
	_, err = admin.Exec(t.Context(), "CREATE DATABASE "+database.Sanitize()+" TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP DATABASE "+database.Sanitize()+" WITH (FORCE)")
		assert.NoError(t, err)
		assert.NoError(t, admin.Close(context.Background()))
	})
	address.Path = "/" + database[0]
	store := openStore(t, address.String(), "outbox")
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()))
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

// Each small change of an expression is noticed.
func TestCheckMutants(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	store := openStore(t, testenv.Postgres(t), "outbox")
	want, err := store.wanted()
	require.NoError(t, err)
	require.NoError(t, store.conn(t.Context(), func(conn *pgx.Conn) error {
		schematest.Mutants(t, store.evaluation(conn), want, `\(id - 0\)|strpos\(ordering_key, '::'\) - 1|\+ 18, (321|120)\)`)
		return nil
	}))
}
