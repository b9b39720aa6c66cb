package mysql

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// Outcomes that change what a key waits for are written under the lock of its shard: they wait for
// whoever decides about its blocks. That a message was published changes no such thing, and waits for
// no other session.
func TestOutcomesWaitForTheShard(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	db := openDB(t, dsn)
	s := newStore(t, db, "outbox_messages")
	_, err := s.Migrate(t.Context())
	require.NoError(t, err)
	claim := &driver.Claim{Broker: "b", Limit: 10, Window: 10, Lease: time.Hour, Worker: "w"}
	claimed := func(key string) driver.Batch {
		inserter, err := outbox.NewInserter(outbox.MySQL, "outbox_messages")
		require.NoError(t, err)
		require.NoError(t, inserter.Insert(t.Context(), db, []outbox.Row{{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T", OrderingKey: key, Payload: []byte("{}")}}))
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT shard FROM outbox_messages WHERE ordering_key = ?", key).Scan(&claim.Shard))
		exchanged, err := s.Exchange(t.Context(), nil, claim)
		require.NoError(t, err)
		require.Len(t, exchanged.Batch.Messages, 1)
		return exchanged.Batch
	}
	first := claimed("k")
	abandoned := &driver.Completion{Lease: first.Lease, BlockAbandoned: true, Other: []driver.Outcome{{ID: first.Messages[0].ID, Status: outbox.StatusAbandoned, Spent: true}}}
	waitsForShard(t, db, claim.Shard, func() error {
		exchanged, err := s.Exchange(t.Context(), abandoned, nil)
		if err == nil && exchanged.Completed.Lost != 0 {
			err = errors.New("it was lost")
		}
		return err
	})
}

// So does what else changes blocks, or tests a version.
func TestDecisionsWaitForTheShard(t *testing.T) {
	t.Parallel()
	db := openDB(t, testenv.MySQL(t))
	s := newStore(t, db, "outbox_messages")
	_, err := s.Migrate(t.Context())
	require.NoError(t, err)
	for _, operation := range []func() error{
		func() error { _, err := s.Renew(t.Context(), driver.Lease{Broker: "b"}); return err },
		func() error {
			_, err := thin{s}.Defer(t.Context(), &driver.Deferral{Broker: "b", Rows: driver.ByID([]int64{1})})
			return err
		},
		func() error { return thin{s}.Lift(t.Context(), &driver.Lift{Broker: "b", Version: 1}) },
	} {
		waitsForShard(t, db, 0, operation)
	}
}

// waitsForShard checks that an operation waits while another session has the lock of a shard of broker b.
func waitsForShard(t *testing.T, db *sql.DB, shard int, operation func() error) {
	t.Helper()
	release := holdShard(t, db, "outbox_messages", "b", shard)
	done := make(chan error, 1)
	go func() { done <- operation() }()
	assert.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM information_schema.processlist
			WHERE db = DATABASE() AND info LIKE 'SELECT version FROM outbox_messages_shards % FOR UPDATE' AND id <> connection_id()`).Scan(&waiting))
		return waiting == 1 || len(done) > 0
	}, 30*time.Second, 10*time.Millisecond)
	select {
	case err := <-done:
		t.Error("it did not wait", err)
		done <- err
	default:
	}
	release()
	require.NoError(t, <-done)
}
