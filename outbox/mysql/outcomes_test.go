package mysql

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// What changes key blocks, or depends on them, waits for the session that has the shard.
func TestOutcomesWaitForTheShard(t *testing.T) {
	t.Parallel()
	db, s, claim := counted(t, 1)
	db.SetMaxOpenConns(10)
	claim.Limit, claim.Window = 1, 1
	exchanged, err := s.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	lease := exchanged.Batch.Lease
	complete := func(status outbox.Status) error {
		_, err := s.Exchange(t.Context(), &driver.Completion{Lease: lease, Other: []driver.Outcome{{ID: lease.FirstID, Status: status}}}, nil)
		return err
	}
	for _, c := range []struct {
		name      string
		operation func() error
	}{
		{"fail", func() error { return complete(outbox.StatusFailed) }},
		{"release", func() error { return complete(outbox.StatusPending) }},
		{"abandon", func() error { return complete(outbox.StatusAbandoned) }},
		{"renew", func() error { _, err := s.Renew(t.Context(), lease); return err }},
		{"defer", func() error {
			_, err := thin{s}.Defer(t.Context(), &driver.Deferral{Broker: "b", Shard: claim.Shard, Rows: driver.ByID([]int64{1})})
			return err
		}},
		{"lift", func() error {
			return thin{s}.Lift(t.Context(), &driver.Lift{Broker: "b", Shard: claim.Shard, Version: 1})
		}},
	} {
		waitsForShard(t, db, claim.Shard, c.name, c.operation)
	}
}

// waitsForShard checks that an operation waits while another session has the lock of a shard of broker b,
// in a transaction that locks no gaps, in which others write.
func waitsForShard(t *testing.T, db *sql.DB, shard int, name string, operation func() error) {
	t.Helper()
	release := holdShard(t, db, "outbox_messages", "b", shard)
	done := make(chan error, 1)
	go func() { done <- operation() }()
	if !assert.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM information_schema.processlist AS p JOIN information_schema.innodb_trx ON trx_mysql_thread_id = p.id
			WHERE trx_isolation_level = 'READ COMMITTED' AND db = DATABASE() AND info LIKE 'SELECT version FROM outbox_messages_shards % FOR UPDATE' AND p.id <> connection_id()`).Scan(&waiting))
		return waiting == 1 || len(done) > 0
	}, 30*time.Second, 150*time.Millisecond) { // innodb_trx shows nothing new to a session that asks more often than every 0.1 s
		release()
		t.FailNow()
	}
	assert.Empty(t, done, "%s did not wait", name)
	release()
	require.NoError(t, <-done, name)
}
