package dedup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The pause after a conflict is short at first, bounded in the end, and over with its context.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for n := 1; n <= 100; n++ {
			began := time.Now()
			pause(t.Context(), n)
			assert.LessOrEqual(t, time.Since(began), min(2*time.Millisecond<<min(n, 10), 250*time.Millisecond))
		}
		ended, end := context.WithCancel(t.Context())
		end()
		began := time.Now()
		pause(ended, 9)
		assert.Zero(t, time.Since(began))
	})
}
