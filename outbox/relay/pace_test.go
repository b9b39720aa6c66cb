package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/outbox"
)

func TestPace(t *testing.T) {
	t.Parallel()
	const least, most = 20 * time.Millisecond, 100 * time.Millisecond
	p := newPace(&outbox.Policy{PollMin: least, PollMax: most})
	step := func(want time.Duration, found bool, claimed int64, err error, why string) {
		t.Helper()
		next := p.next(found, claimed, err)
		assert.LessOrEqual(t, next, want, why)
		assert.GreaterOrEqual(t, next, time.Duration(float64(want)*(1-pollSpread))-time.Nanosecond, why)
	}
	step(40*time.Millisecond, false, 0, nil, "nothing: twice as long")
	step(80*time.Millisecond, false, 0, nil, "")
	step(most, false, 0, nil, "up to the longest")
	step(most, false, 7, nil, "what wake-ups have brought does not hurry it")
	step(least, true, 7, nil, "a first find: a burst may have begun")
	step(least, true, 9, nil, "it has brought something, so on")
	step(least, false, 12, nil, "the last find has brought something")
	step(40*time.Millisecond, false, 12, nil, "and then nothing")
	step(least, true, 12, nil, "a find")
	step(most, true, 12, nil, "of rows that cannot be claimed: no hurry")
	step(most, true, 12, nil, "however long they stay")
	step(least, true, 13, nil, "until one can")
	step(40*time.Millisecond, true, 14, errors.New("away"), "an error: slower")
	step(80*time.Millisecond, false, 14, errors.New("away"), "")
	step(least, true, 14, nil, "the first find after an outage")
}

// Processes that begin at once do not go on in step.
func TestPaceSpreads(t *testing.T) {
	t.Parallel()
	different := map[time.Duration]bool{}
	for range 20 {
		different[newPace(&outbox.Policy{PollMin: time.Second, PollMax: time.Hour}).next(false, 0, nil)] = true
	}
	assert.Greater(t, len(different), 10)
}
