package mysql

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// MariaDB reads each payload that a statement names. A look that passes over large ones would read them all.
func TestALookReadsNoPayloadThatItPassesOver(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	d.deliver(false)
	d.exec(d.store.db, `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, available_at, payload)
		SELECT UNHEX(MD5(UUID())), 'b', 's', 'T', 'key', '2100-01-01', REPEAT('x', 300000) FROM outbox_messages_key_slots WHERE slot < 200`)
	fastest := func(ahead int) time.Duration {
		least := time.Hour
		for range 5 {
			claim := d.claim(false)
			claim.Bytes, claim.Ahead = 1<<20, ahead
			began := time.Now()
			w, err := thin{d.store}.Window(t.Context(), claim)
			least = min(least, time.Since(began))
			require.NoError(t, err)
			require.Equal(t, ahead == 0, len(w.Rows) == 200)
		}
		return least
	}
	assert.Less(t, 4*fastest(driver.MaxNear), fastest(0), "a window of the same rows tells how large each is")
}
