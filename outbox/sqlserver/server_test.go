package sqlserver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// A bench is a store on a migrated table of its own.
type bench struct {
	*testing.T
	*Store

	outside *sql.DB
	shard   int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dsn := testenv.SQLServer(t)
	table := "fanout_test_" + strings.ToLower(rand.Text()[:8])
	outside := openDB(t, dsn, "")
	dropAfter(t, outside, table)
	b := &bench{T: t, Store: newStore(t, openDB(t, dsn, ""), table), outside: outside}
	_, err := b.Migrate(t.Context())
	require.NoError(t, err)
	return b
}

// add writes one row and returns its message id.
func (b *bench) add(on outbox.Execer, key string) string {
	b.Helper()
	inserter, err := outbox.NewInserter(outbox.SQLServer, b.table)
	require.NoError(b, err)
	row := outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "t", OrderingKey: key, Payload: []byte("{}")}
	require.NoError(b, inserter.Insert(b.Context(), on, []outbox.Row{row}))
	return row.MessageID.String()
}

// keys finds two keys of one shard, which becomes the shard of the bench.
func (b *bench) keys() (first, second string) {
	b.Helper()
	b.add(b.outside, "first")
	b.shard = b.shardOf("first")
	for {
		second = rand.Text()
		b.add(b.outside, second)
		if b.shardOf(second) == b.shard {
			execute(b.T, b.outside, "DELETE FROM "+b.table)
			return "first", second
		}
	}
}

func (b *bench) shardOf(key string) (shard int) {
	b.Helper()
	require.NoError(b, b.outside.QueryRowContext(b.Context(), "SELECT MAX(shard) FROM "+b.table+" WHERE ordering_key = @p1", key).Scan(&shard))
	return shard
}

func (b *bench) claimed(ctx context.Context) (ids []string, err error) {
	result, err := b.Exchange(ctx, nil, &driver.Claim{Broker: "b", Shard: b.shard, Limit: 10, Window: 10, Lease: time.Minute, Worker: "w"})
	for _, m := range result.Batch.Messages {
		ids = append(ids, m.MessageID)
	}
	return ids, err
}

// A row that is changed between the claim's look and its update would leave a gap in its key: the
// claim is broken off, made anew, and given up when that happens every time.
func TestClaimIsNotMadeInPart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.keys()
	for _, key := range []string{first, first, second} {
		b.add(b.outside, key)
	}
	text := b.sql.exchange[parts{claim: true}]
	before, update, found := strings.Cut(text, "UPDATE m\n")
	require.True(t, found)
	b.sql.exchange[parts{claim: true}] = before +
		"UPDATE " + b.table + " SET status = N'failed', locked_until = '9999-12-31' WHERE id = (SELECT MIN(id) FROM @chosen);\nUPDATE m\n" + update
	_, err := b.claimed(t.Context())
	require.True(t, numbered(err, errChanged), "%v", err)
	var pending int
	require.NoError(t, b.outside.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+b.table+" WHERE status = 'pending'").Scan(&pending))
	assert.Equal(t, 3, pending)
	b.sql.exchange[parts{claim: true}] = text
	ids, err := b.claimed(t.Context())
	require.NoError(t, err)
	assert.Len(t, ids, 3)
}

// A claim that fails, or whose caller gives up, leaves no transaction and no lock on its
// connection.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.db.SetMaxOpenConns(1) // what is left would be on the next one's connection
	first, _ := b.keys()
	id := b.add(b.outside, first)
	execute(t, b.outside, "CREATE TRIGGER refuse_"+b.table+" ON "+b.table+" AFTER UPDATE AS IF EXISTS (SELECT 1 FROM inserted WHERE status = N'processing') THROW 50000, N'refused', 1")
	_, err := b.claimed(t.Context())
	require.ErrorContains(t, err, "refused")
	assert.NotContains(t, err.Error(), "Transaction count", "error 266")
	execute(t, b.outside, "DROP TRIGGER refuse_"+b.table)

	release := holdShard(t, b.outside, b.table, "b", b.shard)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = b.Renew(ctx, driver.Lease{Broker: "b", Shard: b.shard, Token: uuid.New(), Duration: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded, "it waits for the shard, and no longer than its context")
	release()

	var open int
	require.NoError(t, b.db.QueryRowContext(t.Context(), "SELECT @@TRANCOUNT").Scan(&open))
	assert.Zero(t, open)
	ids, err := b.claimed(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{id}, ids)
}

// "run fanout migrate" is no help to an operator who has just done so.
func TestMissingSchema(t *testing.T) {
	t.Parallel()
	_, err := newStore(t, openDB(t, testenv.SQLServer(t), ""), "fanout_test_nowhere.outbox").Migrate(t.Context())
	require.ErrorContains(t, err, "create the schema first")
	require.NotErrorIs(t, err, outbox.ErrSchema)
}
