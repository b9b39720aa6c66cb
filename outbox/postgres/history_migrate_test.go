package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A migration of an outbox that is written to waits for a transaction that has written, and keeps no other writer waiting for it.
func TestMigrateToAHistoryBesideWriters(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, kept).Migrate(t.Context())
	require.NoError(t, err)
	store := openStore(t, dsn, kept, WithHistory())
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	other, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer other.Close(context.WithoutCancel(t.Context()))
	insert := "INSERT INTO kept (message_id, target_broker, stream, type, payload) VALUES (gen_random_uuid(), 'a', 's', 't', 'x')"
	exec(t, conn, "BEGIN")
	exec(t, conn, insert)
	migrated := make(chan error, 1)
	go func() {
		_, err := store.Migrate(t.Context())
		migrated <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := other.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'kept'::regclass)").Scan(&waits)
		return err == nil && waits
	}, 20*time.Second, time.Millisecond)
	exec(t, other, "SET lock_timeout = '20s'")
	exec(t, other, insert) // while the first one is open
	exec(t, conn, "COMMIT")
	require.NoError(t, <-migrated)
	require.NoError(t, store.Check(t.Context()))
}

// A schema may have a name that has to be quoted, but none that would end a text of the functions.
func TestHistoryInASchemaOfAnyName(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	dsn := testenv.Postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for schema, refused := range map[string]bool{"Mixed-Case": false, `two"quotes`: false, "home.x": false, "o'Brien": true, "50%s": true, "a$$b": true} {
		quoted := pgx.Identifier{schema}.Sanitize()
		exec(t, conn, "CREATE SCHEMA "+quoted)
		own := with(t, dsn, "search_path", quoted)
		store := openStore(t, own, kept, WithHistory())
		if _, err := store.Migrate(t.Context()); refused {
			require.ErrorContains(t, err, "cannot name the schema", schema)
			continue
		}
		require.NoError(t, err, schema)
		require.NoError(t, store.Check(t.Context()), schema)
		exec(t, conn, "SET search_path = "+quoted)
		p := &past{T: t, Store: store, dsn: own, conn: conn}
		p.write("a", uuid.Must(uuid.NewV7()))
		require.Len(t, p.deliver("a"), 1, schema)
		assert.Equal(t, 1, p.number("SELECT count(*) FROM kept_history"), schema)
		p.older(5)
		assert.Equal(t, 1, p.purgeHistory(func(string) time.Duration { return day }), schema)
	}
}

// What a run of another tool that broke off has left of a history is told, and so is what to do about it.
func TestMigrateOverAHalfHistory(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t)
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, kept, WithHistory())
	_, err := openStore(t, dsn, kept).Migrate(t.Context())
	require.NoError(t, err)
	steps, err := historySteps(kept)
	require.NoError(t, err)
	half, _, found := strings.Cut(steps[0].SQL, "\nCREATE INDEX kept_history_search")
	require.True(t, found)
	_, err = store.pool.Exec(t.Context(), half, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.ErrorContains(t, err, "drop what a broken-off run has left")
	require.ErrorContains(t, err, "index kept_history_search: missing")
	_, err = store.pool.Exec(t.Context(), "DROP TABLE kept_history")
	require.NoError(t, err)
	applied, err := store.Migrate(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"1001_history"}, applied)
	require.NoError(t, store.Check(t.Context()))
}
