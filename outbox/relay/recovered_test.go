package relay

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Rows that come back from a lease that ran out are reported, at most once a minute; others are not.
func TestRecoveredRowsAreToldOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &text{}
		w := &worker{p: &Processor{log: slog.New(slog.NewTextHandler(log, nil))}}
		times := func() int { return log.count("recovered rows from expired leases") }
		w.tellRecovered(&driver.Batch{Messages: make([]driver.Message, 3)})
		assert.Zero(t, times())
		back := &driver.Batch{Messages: []driver.Message{{Crashes: 1}, {}, {Crashes: 3}}}
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
