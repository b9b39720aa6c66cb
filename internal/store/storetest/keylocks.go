package storetest

import (
	"context"
	"database/sql"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

var keyLockTests = []test{
	{name: "HeldUntilTheEnd", run: testKeyLocks},
	{name: "IDsInCommitOrder", run: testCommitOrder, concurrent: true},
}

// A key that another transaction has written is locked until that one ends; other keys are not.
func testKeyLocks(t *table) {
	if t.OneWriter {
		t.Skip("writers take turns on this database: there is nothing to lock")
	}
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	begin := func() *sql.Tx {
		tx, err := t.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	try := func(key string) error { // to lock a key without waiting
		tx := begin()
		_, err := tx.ExecContext(t.Context(), t.sql.impatient)
		require.NoError(t, err)
		err = inserter.LockKeys(t.Context(), tx, []outbox.Row{newRow(key)})
		require.NoError(t, tx.Rollback())
		return err
	}
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		tx := begin()
		require.NoError(t, inserter.LockKeys(t.Context(), tx, []outbox.Row{newRow(""), newRow("b"), newRow("a"), newRow("b")}))
		require.NoError(t, inserter.LockKeys(t.Context(), tx, []outbox.Row{newRow("a")}), "a transaction does not wait for itself")
		require.ErrorContains(t, try("a"), "lock the ordering keys")
		require.ErrorContains(t, try("b"), "lock the ordering keys")
		require.NoError(t, try("c"))
		require.NoError(t, try(""))
		require.NoError(t, end(tx))
		require.NoError(t, try("a"))
		require.NoError(t, try("b"))
	}
}

// Transactions that write the same keys, each in an order of its own, neither block each other for
// good nor get ids in another order than that in which they commit.
func testCommitOrder(t *table) {
	const writers, rounds = 4, 25
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	var (
		mu    sync.Mutex
		turns = map[uuid.UUID]int{} // message -> its transaction's place in the order of commits
	)
	write := func(ctx context.Context, keys []string) error {
		rows := make([]outbox.Row, len(keys))
		for i, key := range keys {
			rows[i] = newRow(key)
		}
		tx, err := t.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := inserter.LockKeys(ctx, tx, rows); err != nil {
			return err
		}
		if err := inserter.Insert(ctx, tx, rows); err != nil {
			return err
		}
		mu.Lock() // the locks of the keys are held until the commit: who comes first here commits first
		turn := len(turns)
		for i := range rows {
			turns[rows[i].MessageID] = turn
		}
		mu.Unlock()
		return tx.Commit()
	}
	ctx, cancel := context.WithTimeout(t.Context(), raceTimeout)
	defer cancel()
	var group sync.WaitGroup
	for n := range writers {
		keys := []string{"a", "b", "c"}
		if n%2 == 1 {
			slices.Reverse(keys)
		}
		group.Go(func() {
			for round := range rounds {
				if !assert.NoError(t, write(ctx, keys[:2+(n/2+round)%2])) { // two of the keys, or all
					return
				}
			}
		})
	}
	group.Wait()

	for _, key := range []string{"a", "b", "c"} {
		var order []int
		for _, id := range t.messagesOf(key) {
			order = append(order, turns[id])
		}
		assert.GreaterOrEqual(t, len(order), writers*rounds/2, key)
		assert.IsIncreasing(t, order, "ids of key %q against the order of commits", key)
	}
}

// messagesOf lists the messages of a key in the order of their rows.
func (t *table) messagesOf(key string) []uuid.UUID {
	t.Helper()
	rows, err := t.DB.QueryContext(t.Context(), t.render("SELECT "+t.sql.text("message_id")+" FROM {t} WHERE ordering_key = ? ORDER BY id"), key)
	require.NoError(t, err)
	defer rows.Close()
	var ids []uuid.UUID
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, uuid.MustParse(id))
	}
	require.NoError(t, rows.Err())
	return ids
}
