package integration_test

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

type invoiceSent struct{ Number string }

// Transactions of sqlx, bun and ent are such as a writer takes, on PostgreSQL, whose parameters have
// numbers.
func TestWritersOfOtherLibraries(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store, err := postgres.Open(t.Context(), dsn, outbox.DefaultTable)
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer db.Close()
	events := envelope.NewCatalog("billing")
	envelope.Register[invoiceSent](events)
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.Postgres, Events: events, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	insert := func(tx outbox.Execer) error {
		source := envelope.Source{Aggregate: "Invoice", ID: "1"}
		written, err := writer.Insert(t.Context(), tx, envelope.NewEvent(invoiceSent{"1"}).From(source))
		if err == nil {
			assert.NotNil(t, written)
		}
		return err
	}
	rows := func() (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_messages").Scan(&n))
		return n
	}

	sqlxDB := sqlx.NewDb(db, "pgx")
	sqlxTx, err := sqlxDB.BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, insert(sqlxTx))
	require.NoError(t, sqlxTx.Commit())
	require.Equal(t, 1, rows())
	require.ErrorContains(t, insert(sqlxDB), "*sqlx.DB is a pool")

	bunDB := bun.NewDB(db, pgdialect.New())
	require.NoError(t, bunDB.RunInTx(t.Context(), nil, func(_ context.Context, tx bun.Tx) error { return insert(tx.Tx) }))
	require.Equal(t, 2, rows())
	err = bunDB.RunInTx(t.Context(), nil, func(_ context.Context, tx bun.Tx) error { return insert(tx) })
	require.ErrorContains(t, err, "pass the field Tx of a bun.Tx")
	require.ErrorContains(t, insert(bunDB), "*bun.DB is a pool")

	// A client that was generated with the feature sql/execquery hands ExecContext on to this one.
	driver := entsql.OpenDB("postgres", db)
	entTx, err := driver.Tx(t.Context())
	require.NoError(t, err)
	execer, ok := entTx.(outbox.Execer)
	require.True(t, ok)
	require.NoError(t, insert(execer))
	require.NoError(t, entTx.Commit())
	require.Equal(t, 3, rows())
}
