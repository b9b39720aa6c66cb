package sqlscan

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src  any
		want int
	}{{int64(-3), -3}, {int64(math.MaxInt64), math.MaxInt64}, {"17", 17}, {[]byte("18"), 18}, {int32(4), 4}} {
		var n int
		require.NoError(t, (*Int)(&n).Scan(c.src), "%v", c.src)
		assert.Equal(t, c.want, n)
	}
	n := 5
	for _, src := range []any{nil, "five", 1.5} {
		require.Error(t, (*Int)(&n).Scan(src), "%v", src)
	}
	assert.Equal(t, 5, n)
}

func TestMicros(t *testing.T) {
	t.Parallel()
	var d time.Duration
	require.NoError(t, (*Micros)(&d).Scan(int64(-1_500_000)))
	assert.Equal(t, -1500*time.Millisecond, d)
	require.NoError(t, (*Micros)(&d).Scan([]byte("7")))
	assert.Equal(t, 7*time.Microsecond, d)
	require.Error(t, (*Micros)(&d).Scan(nil))
}

// What this package is for: the cells of a row cost nothing.
func TestNoAllocations(t *testing.T) {
	var (
		n   int
		d   time.Duration
		src any = int64(123456)
	)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_ = (*Int)(&n).Scan(src)
		_ = (*Micros)(&d).Scan(src)
	}))
}
