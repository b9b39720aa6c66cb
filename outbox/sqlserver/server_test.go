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

func (b *bench) begin() *sql.Tx {
	b.Helper()
	tx, err := b.outside.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// visible counts the rows that a read with these hints sees from outside.
func (b *bench) visible(hints string) (n int) {
	b.Helper()
	require.NoError(b, b.outside.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM "+b.table+" WITH ("+hints+")").Scan(&n))
	return n
}

// A row that is not committed yet holds the later rows of its key, and no others; nobody waits for
// its transaction.
func TestRowsInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.keys()
	tx := b.begin()
	early := b.add(tx, first)
	late, other := b.add(b.outside, first), b.add(b.outside, second)
	if b.visible("NOLOCK") != 3 {
		t.Skip("this server shows nobody what is not committed")
	}
	ids, err := b.claimed(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{other}, ids)
	require.NoError(t, tx.Commit())
	ids, err = b.claimed(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{early, late}, ids)
}

// So does a row that another transaction has locked: passing over it must not let its followers
// overtake it.
func TestLockedHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.keys()
	head, follower, other := b.add(b.outside, first), b.add(b.outside, first), b.add(b.outside, second)
	tx := b.begin()
	_, err := tx.ExecContext(t.Context(), "UPDATE "+b.table+" SET crashes = crashes + 1 WHERE message_id = @p1", head)
	require.NoError(t, err)
	if b.visible("READCOMMITTEDLOCK, READPAST, INDEX("+b.table+"_pkey)") != 2 {
		t.Skip("this server passes over no locked rows")
	}
	ids, err := b.claimed(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{other}, ids)
	require.NoError(t, tx.Rollback())
	ids, err = b.claimed(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{head, follower}, ids)
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

// A block whose message another transaction has locked is not taken for one that is gone: nothing
// overtakes it.
func TestLockedBlock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key, _ := b.keys()
	head, follower := b.add(b.outside, key), b.add(b.outside, key)
	claim := &driver.Claim{Broker: "b", Shard: b.shard, Limit: 1, Window: 10, Lease: time.Minute, Worker: "w", Wake: true}
	exchange := func(s *driver.Completion) driver.Batch {
		result, err := b.Exchange(t.Context(), s, claim)
		require.NoError(t, err)
		return result.Batch
	}
	batch := exchange(nil)
	require.Len(t, batch.Messages, 1)
	failed := driver.Outcome{ID: batch.Messages[0].ID, Status: outbox.StatusFailed, Delay: time.Hour, Spent: true}
	require.Empty(t, exchange(&driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{failed}}).Messages)
	deferred, err := b.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: b.shard, Window: 10})
	require.NoError(t, err)
	require.Equal(t, 2, deferred)
	execute(t, b.outside, "UPDATE "+b.table+" SET locked_until = NULL")
	execute(t, b.outside, "UPDATE "+b.table+"_key_blocks SET wake_at = '2000-01-01'")
	batch = exchange(nil)
	require.Len(t, batch.Messages, 1)
	require.Equal(t, head, batch.Messages[0].MessageID)
	_, err = b.Exchange(t.Context(), &driver.Completion{Lease: batch.Lease, Published: []driver.Delivered{{ID: batch.Messages[0].ID}}}, nil)
	require.NoError(t, err)

	tx := b.begin()
	_, err = tx.ExecContext(t.Context(), "UPDATE "+b.table+" SET crashes = crashes + 1 WHERE message_id = @p1", head)
	require.NoError(t, err)
	if b.visible("READCOMMITTEDLOCK, READPAST, INDEX("+b.table+"_pkey)") != 1 {
		t.Skip("this server passes over no locked rows")
	}
	assert.Empty(t, exchange(nil).Messages)
	require.NoError(t, tx.Rollback())
	batch = exchange(nil)
	require.Len(t, batch.Messages, 1)
	assert.Equal(t, follower, batch.Messages[0].MessageID)
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
