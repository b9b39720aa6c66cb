package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

// writers is a database with an empty outbox table, seen by those who write to it.
type writers struct {
	*testing.T
	db       *sql.DB
	inserter *outbox.Inserter
}

func newWriters(t *testing.T, mode string) *writers {
	t.Helper()
	dsn := testenv.Postgres(t)
	store, err := postgres.Open(t.Context(), dsn, "", postgres.WithMaxConns(1))
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Close())
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	query := address.Query()
	query.Set("default_query_exec_mode", mode)
	address.RawQuery = query.Encode()
	db, err := sql.Open("pgx", address.String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	inserter, err := outbox.NewInserter(outbox.Postgres, outbox.DefaultTable)
	require.NoError(t, err)
	return &writers{T: t, db: db, inserter: inserter}
}

func (w *writers) begin() *sql.Tx {
	w.Helper()
	tx, err := w.db.BeginTx(w.Context(), nil)
	require.NoError(w, err)
	w.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// flush locks the key "k", and writes one row with it.
func (w *writers) flush(ctx context.Context, tx *sql.Tx, name string) error {
	rows := []outbox.Row{{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: name, OrderingKey: "k"}}
	if err := w.inserter.LockKeys(ctx, tx, rows); err != nil {
		return err
	}
	return w.inserter.Insert(ctx, tx, rows)
}

// visible lists the rows that are committed, in the order of their ids.
func (w *writers) visible() []string {
	w.Helper()
	rows, err := w.db.QueryContext(w.Context(), "SELECT type FROM outbox_messages ORDER BY id")
	require.NoError(w, err)
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		require.NoError(w, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(w, rows.Err())
	return names
}

// slots lists the slots of the table that are held, or waited for, in order.
func (w *writers) slots(granted bool) []int {
	w.Helper()
	// The two halves of a bigint: the table's id and the slot.
	rows, err := w.db.QueryContext(w.Context(), `SELECT objid FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 1 AND classid = 'outbox_messages'::regclass::oid
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND granted = $1 ORDER BY objid`, granted)
	require.NoError(w, err)
	defer rows.Close()
	var slots []int
	for rows.Next() {
		var slot int
		require.NoError(w, rows.Scan(&slot))
		slots = append(slots, slot)
	}
	require.NoError(w, rows.Err())
	return slots
}

// sessionWaits returns once a session waits for a slot, and says for which.
func (w *writers) sessionWaits() int {
	w.Helper()
	var waited []int
	require.Eventually(w, func() bool { waited = w.slots(false); return len(waited) > 0 }, 30*time.Second, 2*time.Millisecond)
	return waited[0]
}

// Of two transactions that share nothing but a key, the one that writes first commits first.
func TestLockKeysKeepCommitOrder(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWriters(t, mode)
			first, second := w.begin(), w.begin()
			require.NoError(t, w.flush(t.Context(), first, "first"))
			done := make(chan error, 1)
			go func() {
				err := w.flush(t.Context(), second, "second")
				if err == nil {
					err = second.Commit()
				}
				done <- err
			}()
			assert.Equal(t, w.slots(true)[0], w.sessionWaits())
			assert.Empty(t, w.visible())
			require.NoError(t, first.Commit())
			require.NoError(t, <-done)
			assert.Equal(t, []string{"first", "second"}, w.visible())
			assert.Empty(t, w.slots(true), "the locks end with the transactions")
		})
	}
}

// The lock of a savepoint's rows goes with them when they are taken back.
func TestLockKeysAndSavepoints(t *testing.T) {
	t.Parallel()
	w := newWriters(t, "cache_statement")
	tx := w.begin()
	exec := func(text string) {
		_, err := tx.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	exec("SAVEPOINT a")
	require.NoError(t, w.flush(t.Context(), tx, "undone"))
	assert.Len(t, w.slots(true), 1)
	exec("ROLLBACK TO SAVEPOINT a")
	assert.Empty(t, w.slots(true))
	require.NoError(t, w.flush(t.Context(), tx, "kept"))
	assert.Len(t, w.slots(true), 1)
	require.NoError(t, tx.Commit())
	assert.Equal(t, []string{"kept"}, w.visible())
}

// Locks are taken one by one in the order of the slots: who waits for one has all before it and
// none behind it. And they are the locks that docs/plain-sql.md tells writers in other languages to
// take.
func TestLockKeysAreTakenInOrder(t *testing.T) {
	t.Parallel()
	const slot = 500
	w := newWriters(t, "cache_statement")
	holder, waiter := w.begin(), w.begin()
	_, err := holder.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock('outbox_messages'::regclass::oid::bigint << 32 | $1::bigint)", slot)
	require.NoError(t, err)
	many := make([]outbox.Row, 100_000)
	for i := range many {
		many[i].OrderingKey = fmt.Sprintf("key-%d", len(many)-i)
	}
	done := make(chan error, 1)
	go func() { done <- w.inserter.LockKeys(t.Context(), waiter, many) }()
	assert.Equal(t, slot, w.sessionWaits())
	held := w.slots(true)
	require.Len(t, held, slot+1, "all before it, and the holder's own")
	assert.Equal(t, slot, held[slot])
	require.NoError(t, holder.Rollback())
	require.NoError(t, <-done)
	assert.Len(t, w.slots(true), 1024, "the most that a transaction can hold, with 100,000 keys")
	require.NoError(t, waiter.Rollback())
	assert.Empty(t, w.slots(true))
}

// The key of the documented statement for plain SQL and ours meet in one slot.
func TestLockKeysOfPlainSQL(t *testing.T) {
	t.Parallel()
	w := newWriters(t, "cache_statement")
	for _, key := range []string{"k", "ordering::order-42", "schlüssel 鍵 🔑"} {
		plain, ours := w.begin(), w.begin()
		_, err := plain.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock('outbox_messages'::regclass::oid::bigint << 32
			| (get_byte(h, 0) * 256 + get_byte(h, 1)) % 1024)
			FROM sha256(convert_to($1, 'UTF8')) AS h`, key)
		require.NoError(t, err)
		_, err = ours.ExecContext(t.Context(), "SET LOCAL lock_timeout = '1ms'")
		require.NoError(t, err)
		err = w.inserter.LockKeys(t.Context(), ours, []outbox.Row{{OrderingKey: key}})
		require.ErrorContains(t, err, "55P03", key)
		require.NoError(t, ours.Rollback())
		require.NoError(t, plain.Rollback())
	}
}
