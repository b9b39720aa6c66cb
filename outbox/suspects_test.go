package outbox

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// What gets through after an outage was noticed is evidence, but not what was under way by then.
func TestSuspects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s suspects
		early := time.Now()
		time.Sleep(time.Second)
		assert.False(t, s.accuse(1))
		assert.True(t, s.suspected(1))
		time.Sleep(time.Second)
		assert.False(t, s.accuse(1), "nothing has got through since")
		s.pass(early)
		assert.False(t, s.accuse(1), "sent before the outage")
		s.pass(time.Now())
		s.pass(early)
		assert.True(t, s.accuse(1))
		assert.False(t, s.suspected(1))
		assert.False(t, s.accuse(1), "it begins anew")

		s.convict(1)
		assert.True(t, s.accuse(1))
		assert.True(t, s.accuse(1))
		s.clear(1)
		assert.False(t, s.accuse(1))

		for id := range int64(3 * maxSuspects) {
			s.accuse(id)
		}
		assert.LessOrEqual(t, len(s.seen), maxSuspects)
	})
}
