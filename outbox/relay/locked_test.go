package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/memory"
)

// Rows that other sessions have locked are reported when they have been for some seconds, once a minute;
// claims of their shards look for them first as long as there are any.
func TestProcessorReportsLockedRows(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r, store, log := standing(t, path, memory.New())
		store.lock(3)
		r.insert("k", "waits")
		r.start()
		r.until(time.Hour, func() bool { return len(log.with("rows locked by another session")) == 1 })
		line := log.with("rows locked by another session")[0]
		for _, part := range []string{"level=WARN", "rows=3", `session="process 7"`, "shard="} {
			assert.Contains(t, line, part)
		}
		time.Sleep(10 * time.Minute)
		assert.LessOrEqual(t, len(log.with("rows locked by another session")), 11)
		around := store.lock(0)
		require.Greater(t, len(around), 9)
		assert.False(t, around[0], "nothing is known yet")
		assert.NotContains(t, around[4:], false, "but then of each shard")
	})
}
