package mysql

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/outbox"
)

// A server whose settings change names, packets and the meaning of statements is named by the diagnosis, and delivers.
func TestOddServer(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t) // it starts a server
	server, err := testservers.OwnMySQL(t.Context(), "--lower-case-table-names=1", "--max-allowed-packet=1M", "--completion-type=CHAIN", "--sql-mode=")
	if err != nil {
		require.ErrorIs(t, err, testservers.ErrNoBinary)
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	admin := openDB(t, server.URL)
	for _, statement := range []string{"SET GLOBAL sql_select_limit = 1", "CREATE DATABASE odd CHARACTER SET utf8mb4"} {
		_, err = admin.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	store, err := Open(t.Context(), server.URL+"odd", "Mixed_Case")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()))
	diagnosis, err := store.Diagnose(t.Context())
	require.NoError(t, err)
	require.NoError(t, diagnosis.Err())
	var topics []string
	for _, finding := range diagnosis.Warnings() {
		topics = append(topics, finding.Topic)
	}
	assert.Subset(t, topics, []string{"max_allowed_packet", "completion_type", "sql_select_limit", "sql_mode"})

	inserter, err := outbox.NewInserter(outbox.MySQL, "Mixed_Case")
	require.NoError(t, err)
	rows := make([]outbox.Row, 50)
	for i := range rows {
		rows[i] = outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T", OrderingKey: "key", Payload: []byte("{}")}
	}
	require.NoError(t, inserter.Insert(t.Context(), store.db, rows))
	large := rows[0]
	large.MessageID, large.Payload = uuid.New(), make([]byte, 2<<20)
	require.Error(t, inserter.Insert(t.Context(), store.db, []outbox.Row{large}), "the writer learns it")
	claim := &driver.Claim{Broker: "b", Shard: outbox.MySQL.Shard(&rows[0]), Limit: 20, Window: 20, Lease: time.Minute, Worker: "w"}
	var completion *driver.Completion
	delivered := 0
	for {
		exchanged, err := store.Exchange(t.Context(), completion, claim)
		require.NoError(t, err)
		if len(exchanged.Batch.Messages) == 0 {
			break
		}
		completion = &driver.Completion{Lease: exchanged.Batch.Lease}
		for i := range exchanged.Batch.Messages {
			completion.Published = append(completion.Published, driver.Delivered{ID: exchanged.Batch.Messages[i].ID})
		}
		delivered += len(completion.Published)
	}
	assert.Equal(t, len(rows), delivered)
	require.Equal(t, []int{len(rows)}, column[int](t, store.db, "SELECT COUNT(*) FROM Mixed_Case WHERE status = 'published'"))
	var open sql.NullInt64
	require.NoError(t, admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.innodb_trx").Scan(&open))
	assert.Zero(t, open.Int64, "no commit has left a transaction open")
}
