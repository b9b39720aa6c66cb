package tenants_test

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/tenants"
)

// crowded is a world of tenants in which there is always something to do, with places for ten.
func crowded(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t, numbered(n)...)
	for _, d := range w.databases {
		d.endless = true
	}
	w.places = 10
	w.supervisor = w.supervise(slog.New(slog.NewTextHandler(&w.log, nil)))
	return w
}

// Where more tenants have something to do than may be awake they take turns, and none waits for longer
// than the turns of all others take.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := crowded(t, 105)
		w.run()
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{tenants.StateAsleep: 0, tenants.StateAwake: 10, tenants.StateWaiting: 95, tenants.StateFailing: 0}, w.supervisor.States())
		time.Sleep(59 * time.Minute)
		w.change(func() {
			for name, d := range w.databases {
				assert.True(t, d.present, "%s: others are to know that a relay looks after one that waits", name)
				assert.InDelta(t, 11, len(d.opened), 1, name)
				for i := 1; i < len(d.opened); i++ {
					assert.InDelta(t, 320, d.opened[i].Sub(d.opened[i-1]).Seconds(), 20, name)
				}
				assert.InDelta(t, 130, len(d.visits), 15, "%s: it is visited as ever", name)
			}
			assert.LessOrEqual(t, w.most, 10+tenants.DefaultVisits)
		})
		var waits *database
		w.change(func() {
			for _, d := range w.databases {
				if d.open == 0 {
					waits = d
				}
			}
			waits.endless, waits.opened = false, nil // another relay has delivered what there was
		})
		time.Sleep(10 * time.Minute)
		w.change(func() { assert.Empty(t, waits.opened) })
		w.stop()
		assert.Equal(t, 7, bytes.Count(w.log.Bytes(), []byte(`level=WARN msg="tenants take turns" waiting=`)), "one in ten minutes\n%s", &w.log)
	})
}

// Commits in the process of the relay give a tenant that waits no turn, and no visit.
func TestWakeOfATenantThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := crowded(t, 30)
		w.run()
		for range 600 {
			time.Sleep(time.Second)
			for _, name := range numbered(30) {
				w.supervisor.Wake(name)
			}
		}
		w.change(func() {
			for name, d := range w.databases {
				assert.LessOrEqual(t, len(d.visits), 35, name)
				assert.InDelta(t, 6.5, len(d.opened), 1, name)
			}
		})
		w.stop()
	})
}

// While there are free places no tenant gives one up, and a tenant that has nothing to do, fails or is
// removed holds up none that waits.
func TestPlacesAreFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := crowded(t, 10)
		w.run()
		time.Sleep(10 * time.Minute)
		w.change(func() {
			for name, d := range w.databases {
				assert.Len(t, d.opened, 1, name)
			}
			for name, d := range map[string]*database{"hangs": {hangs: true}, "removed": {endless: true}, "late": {endless: true}} {
				w.databases[name], w.listed[name] = d, name
			}
		})
		time.Sleep(15 * time.Second)
		w.change(func() { delete(w.listed, "removed") })
		time.Sleep(time.Minute)
		w.change(func() {
			assert.Positive(t, w.databases["late"].delivered)
			for name := range w.databases {
				w.databases[name].endless = name == "late"
			}
		})
		time.Sleep(3 * time.Minute)
		assert.Equal(t, map[string]int{tenants.StateAsleep: 10, tenants.StateAwake: 1, tenants.StateWaiting: 0, tenants.StateFailing: 1}, w.supervisor.States())
		w.change(func() { clear(w.listed) })
		time.Sleep(time.Minute)
		w.change(func() { assert.Zero(t, w.connected) })
		w.stop()
	})
}
