package outbox

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Rows that come back from a lease that ran out are told of, at most once a minute; others are not.
func TestRecoveredRowsAreToldOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &text{}
		w := &worker{p: &Processor{log: slog.New(slog.NewTextHandler(log, nil))}}
		times := func() int { return log.count("rows come back from a lease that ran out") }
		w.tellRecovered(&Batch{Messages: make([]Message, 3)})
		assert.Zero(t, times())
		back := &Batch{Messages: []Message{{Crashes: 1}, {}, {Crashes: 3}}}
		w.tellRecovered(back)
		assert.Equal(t, 1, times())
		assert.Equal(t, 1, log.count("rows=2 crashes=3"))
		time.Sleep(seldomEvery - time.Nanosecond)
		w.tellRecovered(back)
		assert.Equal(t, 1, times(), "not again so soon")
		time.Sleep(time.Nanosecond)
		w.tellRecovered(back)
		assert.Equal(t, 2, times())
	})
}
