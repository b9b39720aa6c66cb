package tenants_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/tenants"
)

// A purge with much to remove keeps no message of its tenant waiting, and is finished visit by visit.
func TestPurgeOfASleepingTenantGivesWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		d := w.databases["a"]
		d.purging = 10 * time.Minute
		w.run()
		for began := false; !began; time.Sleep(time.Second) {
			w.change(func() { began = d.purgesBegun > 0 })
		}
		w.change(func() { d.rows = true })
		time.Sleep(40 * time.Second)
		w.change(func() { assert.False(t, d.rows, "a message waits for a purge") })
		time.Sleep(90 * time.Minute)
		w.change(func() { assert.NotZero(t, d.purges) })
		w.stop()
	})
}

// A purge that the end of a session cuts short is continued soon, and not after an interval.
func TestPurgeThatWasCutShortIsContinued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		d := w.databases["a"]
		d.purging = 3 * time.Minute
		w.run()
		for range 240 { // mostly it is awake, for a minute and a half at a time
			w.change(func() { d.rows = true })
			time.Sleep(90 * time.Second)
		}
		w.change(func() { assert.GreaterOrEqual(t, d.purges, 3, "in six hours") })
		w.stop()
	})
}

// A database that falls silent while its tenant is awake holds up neither that one's wake-ups nor the
// end.
func TestSilenceBeforeSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.databases["a"].rows = true
		w.run()
		time.Sleep(30 * time.Second)
		require.Contains(t, w.supervisor.Sessions(), "a")
		w.change(func() { w.databases["a"].silent = true })
		time.Sleep(2 * time.Minute)
		w.change(func() { w.databases["a"].silent, w.databases["a"].rows = false, true })
		time.Sleep(3 * time.Minute)
		w.change(func() { assert.False(t, w.databases["a"].rows) })
		assert.Equal(t, 0, w.supervisor.States()[tenants.StateFailing])
		assert.NotZero(t, bytes.Count(w.log.Bytes(), []byte(`msg="tenant not opened" tenant=a`)), "it is no secret")
		w.stop()
	})
}

// A tenant that failed once does not wait for the many that have long been hanging.
func TestOneFailureAmongMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, append(numbered(300), "blip")...)
		for _, name := range numbered(300) {
			w.databases[name].hangs = true
		}
		w.run()
		time.Sleep(2 * time.Hour)
		w.change(func() { w.databases["blip"].broken = true })
		time.Sleep(31 * time.Second)
		w.change(func() { w.databases["blip"].broken, w.databases["blip"].rows = false, true })
		time.Sleep(70 * time.Second)
		w.change(func() { assert.False(t, w.databases["blip"].rows) })
		w.stop()
	})
}

// An entry that is corrected is taken at once: there is nothing to take back in the database that never
// answered.
func TestCorrectedEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, numbered(100)...)
		for _, name := range numbered(100) {
			w.databases[name].hangs = true
		}
		w.databases["right"] = &database{rows: true}
		w.run()
		time.Sleep(10 * time.Minute)
		w.change(func() { w.listed["tenant-042"] = "right" })
		time.Sleep(11 * time.Second)
		w.change(func() { assert.False(t, w.databases["right"].rows) })
		w.change(func() { clear(w.listed) })
		time.Sleep(30 * time.Second)
		assert.Equal(t, map[string]int{tenants.StateAsleep: 0, tenants.StateAwake: 0, tenants.StateWaiting: 0, tenants.StateFailing: 0}, w.supervisor.States())
		w.stop()
	})
}

// A commit during the visit that opens a tenant opens it once.
func TestCommitDuringAVisit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.databases["a"].rows = true
		w.databases["a"].committed = func() { w.supervisor.Wake("a") }
		w.run()
		time.Sleep(10 * time.Minute)
		w.change(func() {
			assert.Equal(t, 1, w.databases["a"].delivered)
			assert.Equal(t, 1, w.databases["a"].sessions)
		})
		w.stop()
	})
}

// asks is a log that looks at the supervisor, as one that counts what it logs may.
type asks struct {
	slog.Handler
	world *world
}

func (h asks) Handle(ctx context.Context, record slog.Record) error {
	if !strings.HasPrefix(record.Message, "tenant ") && !strings.HasPrefix(record.Message, "tenants ") {
		return h.Handler.Handle(ctx, record)
	}
	h.world.supervisor.States()
	return h.Handler.Handle(ctx, record)
}

// A log that takes long, or that asks, holds up no commit: Wake never blocks.
func TestLogMayAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.supervisor = w.supervise(slog.New(asks{slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}), w}))
		w.databases["b"].broken, w.databases["a"].rows = true, true
		w.databases["other"] = &database{}
		w.run()
		time.Sleep(time.Minute)
		w.change(func() { w.listed["c"], w.listed["b"] = "a", "other" })
		time.Sleep(time.Minute)
		w.change(func() { clear(w.listed) })
		time.Sleep(time.Minute)
		w.stop()
	})
}

// A list that panics is one that cannot be read.
func TestListPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.run()
		time.Sleep(time.Minute)
		w.change(func() { w.listPanics = errors.New("postgres://u:secret@h") })
		time.Sleep(time.Minute)
		w.change(func() { w.databases["a"].rows = true })
		time.Sleep(time.Minute)
		w.change(func() { assert.False(t, w.databases["a"].rows, "the last list is in force"); w.listPanics = nil })
		time.Sleep(time.Minute)
		w.stop()
		assert.Equal(t, 1, bytes.Count(w.log.Bytes(), []byte(`msg="tenants not listed"`)))
		assert.Equal(t, 1, bytes.Count(w.log.Bytes(), []byte(`msg="tenants listed again"`)))
		assert.NotContains(t, w.log.String(), "secret")
	})
}
