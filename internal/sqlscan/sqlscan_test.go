package sqlscan

import (
	"math"
	"testing"

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

func TestBool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src  any
		want bool
	}{{int64(0), false}, {int64(1), true}, {true, true}, {false, false}, {"1", true}, {[]byte("false"), false}} {
		truth := !c.want
		require.NoError(t, (*Bool)(&truth).Scan(c.src), "%v", c.src)
		assert.Equal(t, c.want, truth, "%v", c.src)
	}
	truth := true
	for _, src := range []any{nil, int64(2), "maybe"} {
		require.Error(t, (*Bool)(&truth).Scan(src), "%v", src)
	}
	assert.True(t, truth)
}

// What this package is for: the cells of a row cost nothing.
func TestNoAllocations(t *testing.T) {
	var (
		n     int
		truth bool
		src   any = int64(123456)
		yes   any = int64(1)
	)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_ = (*Int)(&n).Scan(src)
		_ = (*Bool)(&truth).Scan(yes)
	}))
}
