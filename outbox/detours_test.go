package outbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The messages of a destination that is unavailable come back one after the other, and no later than after an hour.
func TestDetours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d detours
		delay := func(name string) time.Duration { return d.delay(name, time.Minute, time.Second) }
		assert.Equal(t, time.Minute, delay("a"))
		assert.Equal(t, time.Minute+spread*time.Second, delay("a"))
		assert.Equal(t, time.Minute, delay("b"), "one by one")
		time.Sleep(2 * time.Second)
		assert.Equal(t, time.Minute+(2*spread-2)*time.Second, delay("a"))
		for range 1000 {
			delay("a")
		}
		assert.Equal(t, maxDetour, delay("a"))
		assert.Equal(t, 2*time.Hour, d.delay("a", 2*time.Hour, 0), "the configured delay is the least")
		d.works("a")
		assert.Equal(t, time.Minute, delay("a"))
		time.Sleep(time.Hour)
		assert.Equal(t, time.Minute, delay("a"))
		for i := range 2 * maxDestinations {
			delay(fmt.Sprint(i))
		}
		assert.LessOrEqual(t, len(d.next), maxDestinations)
	})
}
