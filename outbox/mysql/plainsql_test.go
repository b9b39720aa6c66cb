package mysql

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// plainStatements are those of docs/plain-sql.md in MySQL's words.
type plainStatements struct{ insert, lock, again, now, unblock, bump string }

func readPlain(t *testing.T) plainStatements {
	t.Helper()
	page := testenv.PageCode(t, "plain-sql.md")
	var texts []string
	for _, part := range strings.Split(page, "```mysql\n")[1:] {
		text, _, closed := strings.Cut(part, "```")
		require.True(t, closed)
		texts = append(texts, text)
	}
	require.Len(t, texts, 6)
	return plainStatements{texts[0], texts[1], texts[2], texts[3], texts[4], texts[5]}
}

// Each statement of the page does what the page says.
func TestPlainSQL(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	store, db, plain := newStore(t, openDB(t, dsn), ""), openDB(t, with(dsn, "multiStatements=true")), readPlain(t)
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	do := func(text string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var slot int
	require.NoError(t, tx.QueryRowContext(t.Context(), plain.lock).Scan(&slot))
	assert.Equal(t, 377, slot, "which writers in Go lock, too")
	_, err = tx.ExecContext(t.Context(), plain.insert)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	ready, err := store.Ready(t.Context(), "partner", 0)
	require.NoError(t, err)
	require.Len(t, ready.Shards, 1)
	claim := func() driver.Batch {
		t.Helper()
		exchanged, err := store.Exchange(t.Context(), nil, &driver.Claim{
			Broker: "partner", Shard: ready.Shards[0], Limit: 10, Window: 10, Lease: time.Hour, Worker: "w", Wake: true,
		})
		require.NoError(t, err)
		return exchanged.Batch
	}
	end := func(batch driver.Batch, outcome driver.Outcome, block bool) {
		t.Helper()
		require.Len(t, batch.Messages, 1)
		outcome.ID = batch.Messages[0].ID
		_, err := store.Exchange(t.Context(), &driver.Completion{Lease: batch.Lease, BlockAbandoned: block, Other: []driver.Outcome{outcome}}, nil)
		require.NoError(t, err)
	}
	batch := claim()
	require.Len(t, batch.Messages, 1)
	assert.Equal(t, "01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a", batch.Messages[0].MessageID)
	assert.JSONEq(t, `{"city":"Łódź"}`, string(batch.Messages[0].Payload))

	end(batch, driver.Outcome{Status: outbox.StatusAbandoned, Spent: true}, false)
	require.Empty(t, claim().Messages)
	do(plain.bump + plain.again)
	end(claim(), driver.Outcome{Status: outbox.StatusFailed, Spent: true, Delay: time.Hour}, false)
	deferred, err := store.Defer(t.Context(), &driver.Claim{Broker: "partner", Shard: ready.Shards[0], Window: 10})
	require.NoError(t, err)
	require.Equal(t, 1, deferred)
	require.Empty(t, claim().Messages)
	do(plain.bump + plain.now)
	end(claim(), driver.Outcome{Status: outbox.StatusAbandoned, Spent: true}, true)

	// A later row of the key waits for the operator.
	row := outbox.Row{TargetBroker: "partner", Stream: "s", Type: "t", OrderingKey: "ordering::order-42", Payload: []byte("{}")}
	row.MessageID[0] = 1
	inserter, err := outbox.NewInserter(outbox.MySQL, outbox.DefaultTable)
	require.NoError(t, err)
	require.NoError(t, inserter.Insert(t.Context(), db, []outbox.Row{row}))
	require.Empty(t, claim().Messages, "the key is blocked")
	do(plain.bump + plain.unblock)
	require.Len(t, claim().Messages, 1)
}
