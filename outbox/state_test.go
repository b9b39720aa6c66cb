package outbox

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestStates(t *testing.T) {
	t.Parallel()
	seen := map[State]bool{}
	for _, state := range States() {
		assert.True(t, state.Valid(), state)
		assert.False(t, seen[state], state)
		seen[state] = true
	}
	assert.Len(t, seen, 10)
	assert.False(t, State("").Valid())
	assert.False(t, State("pending").Valid())
}
