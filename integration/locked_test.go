package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// A row that another session keeps locked holds its own key, and nothing else; the log says who it is,
// where the database tells.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	databases := []outbox.Dialect{outbox.Postgres, outbox.MySQL}
	testenv.OnEach(t, databases, func(d outbox.Dialect) string { return string(d) }, func(t *testing.T, d outbox.Dialect) {
		b := newBench(newPlace(t, d))
		require.Zero(t, b.run("migrate").code)
		b.insert(970) // ten of each key
		outside, err := b.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = outside.Rollback() })
		// The third of a key: in the middle of its shard.
		var id int64
		require.NoError(t, outside.QueryRowContext(t.Context(), "SELECT id FROM outbox_messages WHERE ordering_key = 'order-1' ORDER BY id LIMIT 1 OFFSET 2").Scan(&id))
		_, err = outside.ExecContext(t.Context(), fmt.Sprintf("UPDATE outbox_messages SET correlation_id = 'scrubbed' WHERE id = %d", id))
		require.NoError(t, err)
		r := b.relay()
		eventually(t, func() bool { return b.count("status = 'published'") == 962 })
		eventually(t, func() bool { return strings.Contains(r.log.String(), `"rows locked by another session"`) })
		if d == outbox.Postgres {
			assert.Contains(t, r.log.String(), `"session":"process `)
		}
		assert.NotContains(t, r.log.String(), "database call failed")
		for n := 971; n <= 1067; n++ {
			b.write(numbered("default", b.stream, n%97, n))
		}
		eventually(t, func() bool { return b.count("status = 'published'") == 962+96 })
		require.NoError(t, outside.Commit())
		eventually(t, func() bool { return b.count("status = 'published'") == 1067 })
		code, _ := r.stop()
		assert.Zero(t, code)
		b.checkOrder(1067)
		assert.Equal(t, 1067, b.count("attempts = 1"))
		assert.Equal(t, 1, strings.Count(r.log.String(), `"rows locked by another session"`), "once a minute")
	})
}
