package tenants_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/tenants"
)

// world is where the databases of tenants are. A settings text is the name of a database.
type world struct {
	t   *testing.T
	log bytes.Buffer

	mu         sync.Mutex
	listed     map[string]string
	refused    map[string]error
	listError  error
	listPanics error
	databases  map[string]*database
	connected  int // databases that are open, and the most that were
	most       int

	places     int
	supervisor *tenants.Supervisor[string]
	stop       func()
}

type database struct {
	rows, hangs, broken bool
	endless             bool // there are always more rows
	visits              []time.Time
	opened              []time.Time
	beats               int
	present             bool // an entry among the instances
	sessions, open      int
	purges, delivered   int
	purgesBegun         int

	purging   time.Duration // how long a purge takes
	silent    bool          // a question is not answered
	committed func()        // called while a visit asks
}

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{t: t, places: tenants.DefaultMaxAwake, listed: map[string]string{}, refused: map[string]error{}, databases: map[string]*database{}}
	for _, name := range names {
		w.listed[name], w.databases[name] = name, &database{}
	}
	w.supervisor = w.supervise(slog.New(slog.NewTextHandler(&w.log, nil)))
	return w
}

func (w *world) supervise(log *slog.Logger) *tenants.Supervisor[string] {
	return tenants.New(tenants.Config[string]{
		List: w.list,
		Visit: func(ctx context.Context, _, settings string) (tenants.Visitor, error) {
			return w.connect(ctx, settings, true)
		},
		Open: func(ctx context.Context, _, settings string) (tenants.Session, error) {
			return w.connect(ctx, settings, false)
		},
		Log: log, MaxAwake: w.places, Visits: tenants.DefaultVisits, Every: tenants.DefaultEvery, VisitEvery: tenants.DefaultVisitEvery, IdleAfter: tenants.DefaultIdleAfter,
		PurgeEvery: time.Hour, Remedy: func(_ string, err error) (string, string) { return err.Error(), "" },
	})
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.supervisor.Run(ctx) }()
	w.stop = func() {
		cancel()
		require.NoError(w.t, <-done)
		assert.Zero(w.t, w.connected)
		for name, d := range w.databases {
			assert.False(w.t, d.present, "%s: who stops leaves", name)
		}
	}
}

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) list(context.Context) (tenants.Listing[string], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listPanics != nil {
		panic(w.listPanics)
	}
	return tenants.Listing[string]{Tenants: maps.Clone(w.listed), Refused: maps.Clone(w.refused)}, w.listError
}

func (w *world) connect(ctx context.Context, name string, visit bool) (*session, error) {
	w.mu.Lock()
	d := w.databases[name]
	hangs, broken := d.hangs, d.broken
	if visit {
		d.visits = append(d.visits, time.Now())
	}
	w.connected++
	w.most = max(w.most, w.connected)
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
		broken = true
	} else {
		time.Sleep(10 * time.Millisecond)
	}
	s := &session{world: w, database: d, wake: make(chan struct{}, 1), visit: visit}
	if broken {
		return nil, errors.Join(errors.New("no answer"), s.disconnect())
	}
	return s, nil
}

type session struct {
	*world
	*database

	visit    bool
	wake     chan struct{}
	activity int64
}

func (s *session) disconnect() error { s.change(func() { s.connected-- }); return nil }

func (s *session) Check(context.Context) error { return nil }

func (s *session) Work(ctx context.Context) (work bool, err error) {
	var committed func()
	silent := false
	s.change(func() { work, silent, committed, s.committed = s.rows || s.endless, s.silent, s.committed, nil })
	if committed != nil {
		committed()
	}
	if silent {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return work, nil
}

func (s *session) Heartbeat(context.Context) error {
	s.change(func() { s.beats++; s.present = true })
	return nil
}

func (s *session) Leave(context.Context) error { s.change(func() { s.present = false }); return nil }
func (s *session) Close() error                { return s.disconnect() }

// Purge is as far as it came when it is cut short.
func (s *session) Purge(ctx context.Context) {
	began, takes := time.Now(), time.Duration(0)
	s.change(func() { takes = s.purging; s.purgesBegun++ })
	select {
	case <-ctx.Done():
	case <-time.After(takes):
	}
	s.change(func() {
		if s.purging = max(0, s.purging-time.Since(began)); s.purging == 0 {
			s.purges++
		}
	})
}

func (s *session) Run(ctx context.Context) error {
	s.change(func() { s.sessions++; s.open++; s.present = true; s.opened = append(s.opened, time.Now()) })
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		s.change(func() {
			if s.rows || s.endless {
				s.rows = false
				s.activity++
				s.delivered++
			}
		})
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-ticker.C:
		}
	}
	s.change(func() { s.open--; s.present = false })
	return nil
}

func (s *session) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) Activity() (n int64) {
	s.change(func() { n = s.activity })
	return n
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("tenant-%03d", i))
	}
	return names
}

// A hundred tenants that have nothing to do: each is visited within half a minute, few at a time and
// evenly, and others know that a relay looks after it.
func TestIdleTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, numbered(100)...)
		began := time.Now()
		w.run()
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		bySecond := map[int]int{}
		visits, beats := 0, 0
		for name, d := range w.databases {
			last := began
			for _, at := range d.visits {
				assert.LessOrEqual(t, at.Sub(last), 30*time.Second+100*time.Millisecond, name)
				if at.Sub(began) > 30*time.Second {
					visits++
					bySecond[int(at.Sub(began).Seconds())]++
				}
				last = at
			}
			beats += d.beats
			assert.True(t, d.present, name)
			assert.Zero(t, d.sessions, name)
		}
		statements := float64(visits)/570 + float64(beats)/600
		t.Logf("%d visits in 570 s, %d heartbeats in 600 s: %.2f statements a second; at most %d connections", visits, beats, statements, w.most)
		assert.LessOrEqual(t, statements, 5.0)
		assert.LessOrEqual(t, w.most, 4)
		for second, n := range bySecond {
			assert.LessOrEqual(t, n, 7, "second %d", second)
		}
		w.mu.Unlock()
		assert.Equal(t, map[string]int{tenants.StateAsleep: 100, tenants.StateAwake: 0, tenants.StateWaiting: 0, tenants.StateFailing: 0}, w.supervisor.States())
		time.Sleep(time.Hour)
		purges := 0
		w.mu.Lock()
		for _, d := range w.databases {
			purges += d.purges
			assert.LessOrEqual(t, d.purges, 2)
		}
		w.mu.Unlock()
		assert.InDelta(t, 116, purges, 10, "once in an hour")
		w.stop()
	})
}

// Rows that come to a sleeping tenant are found by the next visit, or at once where this process wrote
// them; when there is nothing more to do it sleeps again.
func TestWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.run()
		time.Sleep(10 * time.Minute)
		w.change(func() { w.databases["a"].rows = true })
		time.Sleep(31 * time.Second)
		w.change(func() { assert.Equal(t, 1, w.databases["a"].delivered) })
		assert.Contains(t, w.supervisor.Sessions(), "a")
		w.change(func() { w.databases["b"].rows = true })
		w.supervisor.Wake("b")
		time.Sleep(time.Second)
		w.change(func() { assert.Equal(t, 1, w.databases["b"].delivered) })
		time.Sleep(2 * time.Minute)
		assert.Empty(t, w.supervisor.Sessions())
		w.change(func() { assert.Zero(t, w.connected) })
		w.supervisor.Wake("unlisted")
		w.supervisor.Wake("a") // without rows
		time.Sleep(time.Second)
		assert.Contains(t, w.supervisor.Sessions(), "a")
		w.supervisor.Wake("a") // while it is open
		w.stop()
		assert.Equal(t, 0, w.databases["a"].open)
	})
}

// The list decides, unless it could not be read.
func TestListChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		for _, d := range w.databases {
			d.rows = true
		}
		w.databases["other"] = &database{rows: true}
		w.run()
		time.Sleep(time.Second)
		assert.Len(t, w.supervisor.Sessions(), 2)

		w.change(func() { w.listError = errors.New("no such file"); w.listed = nil })
		time.Sleep(20 * time.Second)
		assert.Len(t, w.supervisor.Sessions(), 2)
		w.change(func() {
			w.listError = nil
			w.listed = map[string]string{"b": "b"}
			w.refused["a"] = errors.New("dsn is missing")
		})
		time.Sleep(20 * time.Second)
		assert.Len(t, w.supervisor.Sessions(), 2)
		w.change(func() { delete(w.refused, "a"); w.listed = map[string]string{"a": "other", "new": "a"} })
		time.Sleep(10 * time.Second)
		w.change(func() {
			assert.Equal(t, []int{0, 0, 1}, []int{w.databases["a"].open, w.databases["b"].open, w.databases["other"].open})
			assert.Equal(t, 1, w.databases["other"].delivered)
			assert.False(t, w.databases["b"].present)
		})
		w.change(func() { w.listed = nil })
		time.Sleep(20 * time.Second)
		assert.Empty(t, w.supervisor.Sessions())
		assert.Equal(t, map[string]int{tenants.StateAsleep: 0, tenants.StateAwake: 0, tenants.StateWaiting: 0, tenants.StateFailing: 0}, w.supervisor.States())
		w.change(func() { assert.Zero(t, w.connected) })
		w.stop()
		for _, text := range []string{
			`level=ERROR msg="tenants not listed" effect="the last list stays in force"`, `msg="tenants listed again"`, `msg="tenant entry refused" tenant=a effect="it is served with its former settings" remedy="correct the entry"`, `level=INFO msg="tenant entry accepted" tenant=a`, `msg="tenant removed" tenant=b`,
			`msg="tenant changed" tenant=a`, `msg="tenant added" tenant=new`, `level=WARN msg="all tenants removed" tenants=2`,
		} {
			assert.Equal(t, 1, bytes.Count(w.log.Bytes(), []byte(text)), "%s\n%s", text, &w.log)
		}
	})
}

// Databases that hang are tried again with a growing delay, and hold up no other.
func TestFailingTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, numbered(40)...)
		for i, name := range numbered(40) {
			w.databases[name].hangs = i%2 == 0
		}
		w.run()
		time.Sleep(5 * time.Minute)
		assert.Equal(t, map[string]int{tenants.StateAsleep: 20, tenants.StateAwake: 0, tenants.StateWaiting: 0, tenants.StateFailing: 20}, w.supervisor.States())
		for i, name := range numbered(40) {
			w.change(func() { w.databases[name].visits = nil; w.databases[name].rows = i == 1 })
		}
		time.Sleep(time.Second * 31)
		w.change(func() { assert.Equal(t, 1, w.databases["tenant-001"].delivered) })
		time.Sleep(10 * time.Minute)
		for i, name := range numbered(40) {
			w.change(func() {
				if i%2 == 0 {
					assert.InDelta(t, 6, len(w.databases[name].visits), 2, name)
					w.databases[name].hangs, w.databases[name].rows = false, true
				}
			})
		}
		time.Sleep(3 * time.Minute)
		for _, name := range numbered(40) {
			w.change(func() { assert.False(t, w.databases[name].rows, name) })
		}
		w.stop()
		assert.Equal(t, 20, bytes.Count(w.log.Bytes(), []byte(`level=ERROR msg="tenant not opened"`)))
		assert.Equal(t, 20, bytes.Count(w.log.Bytes(), []byte(`msg="tenant answers again"`)))
	})
}
