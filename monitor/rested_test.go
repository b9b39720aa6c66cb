package monitor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An answer is given again for ten times as long as it took, so that those who ask take no more than a
// tenth of a processor; after an action it is made anew, and an error is not kept.
func TestRested(t *testing.T) {
	t.Parallel()
	var (
		r     rested[string, int]
		clock time.Time
		made  int

		broken error
	)
	now := func() time.Time { return clock }
	ask := func() (int, error) { made++; clock = clock.Add(13 * time.Second); return made, broken }
	get := func(key string) int {
		t.Helper()
		value, err := r.get(key, now, ask)
		require.NoError(t, err)
		return value
	}
	assert.Equal(t, 1, get("a"))
	clock = clock.Add(129 * time.Second)
	assert.Equal(t, 1, get("a"))
	assert.Equal(t, 2, get("b"), "each by itself")
	clock = clock.Add(time.Second)
	assert.Equal(t, 3, get("a"))
	r.forget()
	assert.Equal(t, 4, get("a"))
	broken = errors.New("no")
	_, err := r.get("c", now, ask)
	require.Error(t, err)
	broken = nil
	assert.Equal(t, 6, get("c"))
	for i := range 3 * maxRested {
		_, err := r.get(string(rune('A'+i)), now, func() (int, error) { clock = clock.Add(cheap / 2); return 0, nil })
		require.NoError(t, err)
	}
	assert.Equal(t, 6, get("c"), "what costs nothing does not push it out")
	for i := range 3 * maxRested {
		get(string(rune('A' + i)))
	}
	assert.LessOrEqual(t, len(r.answers), maxRested)
}
