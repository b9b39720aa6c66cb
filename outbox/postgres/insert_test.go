package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/store/storetest"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// pgxTx is a transaction of an application that uses pgx.
type pgxTx struct{ pgx.Tx }

func (tx pgxTx) Insert(ctx context.Context, w *outbox.Writer, events ...envelope.Event) (*outbox.Written, error) {
	return Insert(ctx, tx.Tx, w, events...)
}

func (tx pgxTx) Exec(ctx context.Context, text string) error {
	_, err := tx.Tx.Exec(ctx, text)
	return err
}

func (tx pgxTx) Commit() error   { return tx.Tx.Commit(context.Background()) }
func (tx pgxTx) Rollback() error { return tx.Tx.Rollback(context.Background()) }

// A writer does the same in transactions of pgx, in whichever mode it sends parameters.
func TestInsert(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dsn := testenv.Postgres(t)
			pool, err := pgxpool.New(t.Context(), with(t, dsn, "default_query_exec_mode", mode))
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			conform(t, func(t *testing.T, newBundle func(*testing.T) storetest.Bundle) {
				t.Helper()
				storetest.RunWriter(t, func(t *testing.T) storetest.Bundle {
					bundle := newBundle(t)
					bundle.BeginWriter = func(ctx context.Context, t *testing.T) storetest.WriterTx {
						t.Helper()
						tx, err := pool.Begin(ctx)
						require.NoError(t, err)
						return pgxTx{tx}
					}
					return bundle
				})
			}, dsn, dsn)
		})
	}
}

func TestInsertRefusesTheWriterOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	events := envelope.NewCatalog("ordering")
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.SQLite, Events: events})
	require.NoError(t, err)
	_, err = Insert(t.Context(), nil, writer)
	require.EqualError(t, err, "postgres: insert 0 events: the writer is for sqlite: make one with outbox.WriterConfig{Dialect: outbox.Postgres}")
}
