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
	abandoned := driver.Outcome{ID: lease.FirstID, Status: outbox.StatusAbandoned, Spent: true}
	for _, c := range []struct {
		name      string
		operation func() error
	}{
		{"complete", func() error {
			_, err := s.Exchange(t.Context(), &driver.Completion{Lease: lease, Other: []driver.Outcome{abandoned}}, nil)
			return err
		}},
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

// waitsForShard checks that an operation waits while another session has the lock of a shard of broker b.
func waitsForShard(t *testing.T, db *sql.DB, shard int, name string, operation func() error) {
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
	assert.Empty(t, done, "%s did not wait", name)
	release()
	require.NoError(t, <-done, name)
}
