package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// Rows that plain SQL has scheduled, each with a key of its own, stand before one that can go: it is
// delivered while most of them are still in the claim's way. They go out when they are due.
func TestProcessorLooksPastScheduledRows(t *testing.T) {
	if testenv.RaceDetector() {
		t.Skip("thousands of rows in SQLite take a minute under the race detector")
	}
	const scheduled = 9000
	inBubble(t, func(t *testing.T, path string) {
		var r *rig
		var deferred atomic.Value
		var delivered atomic.Int64
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if delivered.Add(1); m.ID == "free-0" {
				deferred.Store(r.query("SELECT count(*) FROM outbox_messages WHERE deferred = 1"))
			}
			return nil
		}}
		r = newRig(t, path, broker, outbox.Policy{})
		_, err := r.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, available_at, payload)
			WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?)
			SELECT printf('00000000-0000-4000-8000-%012d', n), 'b', 's', 'T', 'key-' || n, ?, CAST('later-' || n AS BLOB) FROM number`,
			scheduled, time.Now().Add(time.Hour).UnixMicro())
		require.NoError(t, err)
		r.insert("key-7", "behind-0") // behind a scheduled row of its key
		r.insert("another", "free-0")
		r.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, "4000", deferred.Load(), "rows that had been deferred when the free one was delivered")
		assert.Equal(t, int64(1), delivered.Load())
		_, err = r.db.ExecContext(t.Context(), "DELETE FROM outbox_messages WHERE ordering_key NOT IN ('key-7', 'key-8')") // that would take a while
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Equal(t, int64(4), delivered.Load())
		assert.Equal(t, "published 1", r.status("behind-0"))
		assert.Equal(t, "published 1", r.status("later-8"))
		r.stop()
		require.NoError(t, r.db.Close())
	})
}
