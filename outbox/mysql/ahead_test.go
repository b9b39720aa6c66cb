package mysql

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// MariaDB reads each payload that a statement names. A look that passes over large ones would read them all.
func TestALookReadsNoPayloadThatItPassesOver(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	d.deliver(false)
	d.exec(d.store.db, `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, locked_until, payload)
		SELECT UNHEX(REPLACE(UUID(), '-', '')), 'b', 's', 'T', 'key', '2100-01-01', REPEAT('x', 300000) FROM outbox_messages_key_slots WHERE slot < 200`)
	// pages that a statement asks InnoDB for, its answers apart.
	pages := func(name string) (n int) {
		t.Helper()
		st := d.store.statements[name]
		given := args{"broker": "b", "shard": d.shard, "window": 200, "sized": true, "ahead": 200, "near": driver.MaxNear}
		var analysis string
		if err := d.store.db.QueryRowContext(t.Context(), "ANALYZE FORMAT=JSON "+st.text, st.bind(given)...).Scan(&analysis); err != nil {
			t.Skipf("only MariaDB tells which pages a statement has read: %v", err)
		}
		for _, counted := range regexp.MustCompile(`"pages_accessed": (\d+)`).FindAllStringSubmatch(analysis, -1) {
			one, err := strconv.Atoi(counted[1])
			require.NoError(t, err)
			n += one
		}
		return n
	}
	assert.Greater(t, pages("window"), 200*16, "a window tells how large each row is, and so reads it")
	assert.Less(t, pages("ahead"), 200*8)
}
