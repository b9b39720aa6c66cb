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

// A writer does the same in transactions of pgx, whatever the mode in which it sends parameters.
func TestInsert(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "simple_protocol", "cache_describe", "describe_exec", "exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			switch mode {
			case "cache_statement":
			case "simple_protocol":
				testenv.NeedSeconds(t)
			default:
				testenv.NeedLong(t)
			}
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

// In a savepoint, which is a transaction of pgx in another one, the outer one writes and counts on.
func TestInsertInASavepoint(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	const table = "outbox_savepoints"
	store, err := New(pool, table)
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	type Noted struct{ N int }
	events := envelope.NewCatalog("ordering")
	envelope.Register[Noted](events)
	writer, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.Postgres, Events: events, Routing: outbox.Routing{Table: table}})
	require.NoError(t, err)

	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	insert := func(n int) {
		_, err := Insert(t.Context(), tx, writer, envelope.NewEvent(Noted{n}).From(envelope.Source{Aggregate: "Order", ID: "1", Version: 7}))
		require.NoError(t, err)
	}
	insert(1)
	for n, end := range []func(pgx.Tx) error{
		func(nested pgx.Tx) error { return nested.Commit(t.Context()) },
		func(nested pgx.Tx) error { return nested.Rollback(t.Context()) },
	} {
		nested, err := tx.Begin(t.Context())
		require.NoError(t, err)
		insert(2 + n)
		require.NoError(t, end(nested))
	}
	insert(4)
	require.NoError(t, tx.Commit(t.Context()))

	rows, err := pool.Query(t.Context(), "SELECT payload FROM "+table+" ORDER BY id")
	require.NoError(t, err)
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	require.NoError(t, err)
	var got []string
	for _, payload := range payloads {
		message, err := envelope.DecodeInternal(payload)
		require.NoError(t, err)
		got = append(got, string(message.Data)+" "+message.Metadata.Domain.SequenceID)
	}
	require.Equal(t, []string{`{"N":1} 7.1`, `{"N":2} 7.2`, `{"N":4} 7.4`}, got)
}
