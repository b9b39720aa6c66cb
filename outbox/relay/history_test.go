package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// shows has a history learn from a call that began then and had one message.
func (h *history) shows(began time.Time, id int64, err error) (charged bool) {
	call := Call{Messages: []*driver.Message{{ID: id, Stream: "s"}}, Results: []brokers.Result{{Err: err}}, Began: began}
	c := classify(&call, h.of(&call), 3, nil)
	h.learn(&call, &c)
	return c.charged
}

// What is delivered after an outage was noticed is evidence, but not what was in progress by then.
func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h history
		outage := brokers.Unreachable(brokers.ScopeBroker, errNoLuck)
		meets := func(id int64) (charged bool) { return h.shows(time.Now(), id, outage) }
		early := time.Now()
		time.Sleep(time.Second)
		assert.False(t, meets(1))
		assert.True(t, h.knows(1))
		time.Sleep(time.Second)
		assert.False(t, meets(1), "nothing has got through since")
		h.shows(early, 2, nil)
		assert.False(t, meets(1), "sent before the outage")
		h.shows(time.Now(), 2, nil)
		h.shows(early, 2, nil)
		assert.True(t, meets(1))
		assert.False(t, h.knows(1))
		assert.False(t, meets(1), "it begins anew")
		assert.False(t, h.knows(2))

		h.shows(time.Now(), 1, &breakdown{what: "panicked"})
		assert.True(t, h.knows(1))
		h.shows(time.Now(), 1, nil)
		assert.False(t, h.knows(1))
		assert.False(t, meets(1), "that was no outage")

		for id := range int64(3 * maxHistory) {
			meets(id)
		}
		assert.LessOrEqual(t, len(h.met), maxHistory)
	})
}

// A refused message that is not tried again, since another process has delivered it or an operator has
// removed it, is forgotten: it does not make tries of a broker that hangs as large as those of one that refuses.
func TestHistoryForgetsWhatDoesNotComeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := history{refusals: refusals{keep: time.Hour}}
		refusal := brokers.Refused(brokers.ScopeBroker, errNoLuck)
		h.shows(time.Now(), 1, refusal)
		time.Sleep(40 * time.Minute)
		h.shows(time.Now(), 2, refusal)
		assert.Equal(t, refusedLimit, h.probeLimit())
		assert.EqualValues(t, 2, h.suspects.Load())
		time.Sleep(40 * time.Minute)
		h.shows(time.Now(), 3, brokers.Unreachable(brokers.ScopeBroker, errNoLuck))
		assert.EqualValues(t, 2, h.suspects.Load(), "the second one, and one that met an outage")
		time.Sleep(40 * time.Minute)
		h.shows(time.Now(), 3, nil)
		assert.Equal(t, probeLimit, h.probeLimit())
		assert.Zero(t, h.suspects.Load())
		for id := range int64(2 * maxRefused) {
			h.shows(time.Now(), id, refusal)
		}
		assert.LessOrEqual(t, len(h.refusals.known), maxRefused)
		h.shows(time.Now(), 1, refusal)
		assert.Equal(t, time.Hour, h.refusals.keep)
	})
}

// A place that has refused several messages since it delivered something proves nothing against one
// of them.
func TestHistoryOfSeveralRefusals(t *testing.T) {
	t.Parallel()
	var h history
	at, refusal := place{scope: brokers.ScopeBroker}, brokers.Refused(brokers.ScopeBroker, errNoLuck)
	quiet := func() []bool { return []bool{h.refusals.quiet(at, 1), h.refusals.quiet(at, 2)} }
	assert.Equal(t, []bool{true, true}, quiet())
	h.shows(time.Now(), 1, refusal)
	assert.Equal(t, []bool{true, false}, quiet())
	h.shows(time.Now(), 2, refusal)
	assert.Equal(t, []bool{false, false}, quiet())
	h.shows(time.Now(), 3, nil)
	assert.Equal(t, []bool{true, true}, quiet())
}

// Where several messages of a call meet an outage, or none does, nothing is remembered of them.
func TestHistoryOfManyAtOnce(t *testing.T) {
	t.Parallel()
	var h history
	for _, results := range []string{"oo", "opo", "prxdn"} {
		call := lettered(results, 0)
		c := classify(call, h.of(call), 3, nil)
		h.learn(call, &c)
		assert.Empty(t, h.met, results)
	}
	call := lettered("npo", 0)
	c := classify(call, h.of(call), 3, nil)
	h.learn(call, &c)
	assert.True(t, h.knows(2), "it was alone to meet one")
	assert.Len(t, h.met, 1)
	assert.False(t, h.of(call).known)
	call.Messages = call.Messages[2:]
	assert.True(t, h.of(call).known)
}
