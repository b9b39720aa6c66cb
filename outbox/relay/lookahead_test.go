package relay

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// A look follows rows that were deferred, as soon as that has taken half as long as the look before, and
// goes further each time that it finds nothing.
func TestLookAhead(t *testing.T) {
	t.Parallel()
	var l lookAhead
	assert.Zero(t, l.next(), "nothing waits")
	l.deferred(time.Millisecond)
	assert.Equal(t, 16_000, l.next())
	l.looked(10*time.Millisecond, false)
	assert.Zero(t, l.next(), "nothing was deferred since")
	l.deferred(3 * time.Millisecond)
	assert.Zero(t, l.next(), "it is not its turn")
	l.deferred(2 * time.Millisecond)
	assert.Equal(t, 1_024_000, l.next())
	l.looked(0, true)
	l.deferred(1)
	assert.Equal(t, 1_024_000, l.next(), "far enough")
	l.looked(0, false)
	l.deferred(1)
	assert.Equal(t, maxAhead, l.next(), "no further")
	l.failed(2*time.Millisecond, maxAhead)
	assert.Zero(t, l.next(), "something is to be deferred first")
	l.deferred(time.Millisecond)
	assert.Equal(t, maxAhead/8, l.next(), "it may have been too far")
	l.looked(0, false)
	l.deferred(1)
	assert.Equal(t, maxAhead/8, l.next(), "and stays so")
	l.clear()
	assert.Zero(t, l.next())
	l.deferred(time.Hour)
	assert.Equal(t, minAhead, l.next(), "another head")
}

// What is locked at the head is still so when a claim that looks past it meets none.
func TestALookSaysNothingOfLockedRowsAtTheHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p := &Processor{log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 10 {
			p.lockedSeen(t.Context(), &driver.Claim{Shard: 3}, &driver.Batch{Locked: 2})
			p.lockedSeen(t.Context(), &driver.Claim{Shard: 3, Ahead: 1000}, &driver.Batch{})
			assert.True(t, p.locked.around(3))
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, strings.Count(log.String(), `msg="rows locked by another session"`))
		p.lockedSeen(t.Context(), &driver.Claim{Shard: 3}, &driver.Batch{})
		assert.False(t, p.locked.around(3))
	})
}
