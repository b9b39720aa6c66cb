package postgres

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// TestWantedFacts keeps schema.facts to what the migrations make; FANOUT_UPDATE_GOLDEN writes it anew.
func TestWantedFacts(t *testing.T) {
	t.Parallel()
	// A name that stands for nothing else, so that it can be told apart where it stands in the facts.
	const table = "tname"
	store := openStore(t, testenv.Postgres(t), table)
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	var got string
	require.NoError(t, store.conn(t.Context(), func(conn *pgx.Conn) error {
		made, err := tablesOf(t.Context(), conn, table)
		require.NoError(t, err)
		facts, err := store.facts(t.Context(), conn, made)
		got = "# What the migrations make, as sql/facts.sql sees it. A test writes this file.\n" + facts.Template(table)
		return err
	}))
	const file = "schema.facts"
	if os.Getenv("FANOUT_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	assert.Equal(t, wantedFacts, got, "FANOUT_UPDATE_GOLDEN=1 go test -run %s", t.Name())
}

// tablesOf lists the tables in the order in which the migrations made them.
func tablesOf(ctx context.Context, conn *pgx.Conn, table string) ([]string, error) {
	rows, err := conn.Query(ctx, `SELECT relname::text FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname <> $1::text || '_migrations' ORDER BY oid`, table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

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
