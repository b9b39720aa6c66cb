package relay

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asleep moves the clock on the wall of a time and leaves its monotonic one, as a machine does that
// sleeps.
func asleep(t *testing.T, at time.Time, seconds int) time.Time {
	t.Helper()
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&at))
	require.NotZero(t, fields.wall>>63, "the time has two readings")
	fields.wall += uint64(seconds << 30)
	return at
}

// A lease is over by either clock: a set one cannot stretch it, nor can a machine that was asleep.
func TestLeaseIsOverByEitherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	deadline := now.Add(time.Minute)
	assert.False(t, past(deadline, now))
	assert.False(t, past(deadline, now.Add(59*time.Second)))
	assert.True(t, past(deadline, now.Add(time.Minute)))
	assert.False(t, past(deadline, asleep(t, now, 59)))
	assert.True(t, past(deadline, asleep(t, now, 61)))
	assert.True(t, past(deadline, asleep(t, now.Add(time.Minute), -600)), "an operator has set the clock back")
	assert.True(t, past(time.Time{}, now))
}
