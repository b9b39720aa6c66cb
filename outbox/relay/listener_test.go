package relay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

// switchboard is a listener that a test interferes with.
type switchboard struct {
	driver.Delivery
	mu       sync.Mutex
	calls    int   // of Listen
	probes   int   // of Notify
	refuse   error // of Listen
	silent   bool  // nothing said is heard
	mute     error // of Notify
	cut      chan struct{}
	heard    func(text string)
	hangs    bool
	twice    bool // everything is heard
	garbled  bool // what is said is heard, and its answer lost
	attempts []time.Time
}

func newSwitchboard() *switchboard { return &switchboard{cut: make(chan struct{})} }

// tried is how often somebody has listened.
func (s *switchboard) tried() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// attempt is when somebody did so for the n-th time, from 0 on.
func (s *switchboard) attempt(n int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[n]
}

func (s *switchboard) Listen(ctx context.Context, began func(), heard func(string)) error {
	s.mu.Lock()
	s.calls++
	s.attempts = append(s.attempts, time.Now())
	refuse, hangs, texts := s.refuse, s.hangs, make(chan string, 100)
	s.heard = func(text string) { texts <- text }
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if refuse != nil {
		return refuse
	}
	began()
	for {
		select {
		case text := <-texts:
			heard(text)
		case <-s.cut:
			return errors.New("connection reset")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *switchboard) Notify(_ context.Context, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes++
	if (s.mute == nil || s.garbled) && !s.silent {
		s.heard(text)
		if s.twice {
			s.heard(text)
		}
	}
	return s.mute
}

func (s *switchboard) set(change func(*switchboard)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// startListener runs a listener in a bubble of synctest. woken returns what they have said since
// the last call.
func startListener(t *testing.T, s *switchboard) (e *listener, log *lines, woken func() [][]wakeup.WakeUp) {
	t.Helper()
	var (
		mu    sync.Mutex
		calls [][]wakeup.WakeUp
	)
	log = newLog(t)
	e = &listener{store: s, log: log.logger(0), wake: func(wakeUps ...wakeup.WakeUp) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, wakeUps)
	}}
	running(t, func(ctx context.Context) error { e.run(ctx); return nil })
	return e, log, func() [][]wakeup.WakeUp {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		all := calls
		calls = nil
		return all
	}
}

func TestListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSwitchboard()
		e, log, woken := startListener(t, s)
		assert.Equal(t, [][]wakeup.WakeUp{nil}, woken(), "all processors look: something may have been said before")
		assert.Equal(t, ListenerConnected, e.state())
		s.heard("1 default:3 partner")
		s.heard("gibberish")
		s.heard(wakeup.ProbeText("another relay's"))
		assert.Equal(t, [][]wakeup.WakeUp{{{Broker: "default", Shards: 3}, {Broker: "partner", Shards: wakeup.Unknown}}, nil}, woken())
		time.Sleep(time.Hour)
		assert.Empty(t, woken(), "a probe wakes nobody")
		assert.InDelta(t, time.Hour/probeEvery, s.probes, 2)
		s.set(func(s *switchboard) { s.twice = true })
		time.Sleep(time.Hour)
		s.heard("1 default:3")
		assert.Equal(t, [][]wakeup.WakeUp{{{Broker: "default", Shards: 3}}}, woken(), "an echo of the echo changes nothing")
		assert.Equal(t, 1, s.tried())
		assert.Zero(t, log.count("level"))
	})
}

// Fault 23, the connection: it is made anew, and everybody looks for what was missed.
func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSwitchboard()
		e, log, woken := startListener(t, s)
		woken()
		s.set(func(s *switchboard) { s.refuse = errors.New("no route") })
		s.cut <- struct{}{}
		assert.Empty(t, woken())
		assert.Equal(t, ListenerDisconnected, e.state())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, 1, log.count("connection reset"))
		assert.Equal(t, 1, log.count("no route"), "the cause that stands")
		assert.Equal(t, 2, log.count("listener disconnected"), "an outage does not fill the log")
		assert.Greater(t, s.tried(), int(time.Hour/listenerLongestRetry))
		assert.Less(t, s.tried(), 3*int(time.Hour/listenerLongestRetry))
		s.set(func(s *switchboard) { s.refuse, s.hangs = nil, true })
		time.Sleep(time.Minute)
		s.set(func(s *switchboard) { s.hangs = false })
		time.Sleep(listenerLongestRetry + connectTime)
		assert.Equal(t, [][]wakeup.WakeUp{nil}, woken())
		assert.Equal(t, ListenerConnected, e.state())
		assert.Equal(t, 1, log.count("listener connected again"))

		calls, cut := s.tried(), time.Now() // one that has worked is back soon
		s.cut <- struct{}{}
		time.Sleep(listenerRetry)
		assert.Equal(t, [][]wakeup.WakeUp{nil}, woken())
		assert.Equal(t, calls+1, s.tried())
		assert.LessOrEqual(t, s.attempt(calls).Sub(cut), listenerRetry)
		assert.Equal(t, 1, log.count("no connection within"))
		assert.Equal(t, 4, log.count("listener disconnected"))
	})
}

// Fault 23, the pooler: LISTEN succeeds and nothing arrives.
func TestListenerBehindAPooler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSwitchboard()
		s.silent = true
		e, log, woken := startListener(t, s)
		time.Sleep(time.Hour)
		assert.Equal(t, ListenerDisconnected, e.state())
		assert.Equal(t, 1, log.count("pooler in transaction mode"))
		assert.Less(t, s.tried(), 2*int(time.Hour/listenerRetryPooler)+2, "it tries again now and then")
		assert.Greater(t, s.tried(), 5)
		woken()
		s.set(func(s *switchboard) { s.silent = false })
		time.Sleep(listenerRetryPooler + probeTime)
		assert.Equal(t, [][]wakeup.WakeUp{nil}, woken())
		assert.Equal(t, ListenerConnected, e.state())
		assert.Equal(t, 1, log.count("listener connected again"))

		s.set(func(s *switchboard) { s.silent = true }) // from some moment on
		time.Sleep(probeEvery + 2*probeTime + listenerRetry)
		synctest.Wait()
		assert.Equal(t, ListenerDisconnected, e.state())
		assert.Equal(t, 1, log.count("ceased to arrive"))
		assert.Equal(t, 2, log.count("pooler in transaction mode"), "once more, since it is news")
		time.Sleep(time.Hour)
		assert.Equal(t, 3, log.count("level=WARN"))
	})
}

// Probes that are heard although sending them fails, as when their answer is lost, neither stop the
// listener, nor are they taken for the echo of a later one.
func TestListenerReceivesFailedProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSwitchboard()
		e, _, woken := startListener(t, s)
		woken()
		s.set(func(s *switchboard) { s.mute, s.garbled = errors.New("timeout"), true })
		time.Sleep(10 * probeEvery)
		s.set(func(s *switchboard) { s.heard(wakeup.Text([]wakeup.WakeUp{{Broker: "b"}})) })
		assert.Equal(t, [][]wakeup.WakeUp{{{Broker: "b"}}}, woken(), "it goes on listening")
		s.set(func(s *switchboard) { s.mute, s.garbled, s.silent = nil, false, true })
		time.Sleep(probeEvery + time.Second)
		s.set(func(s *switchboard) { s.heard(wakeup.ProbeText("that of a probe before")) })
		time.Sleep(probeTime)
		synctest.Wait()
		assert.Equal(t, ListenerDisconnected, e.state(), "the echo of a probe of before is no proof")
	})
}

func TestEngineListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSwitchboard()
		s.Delivery = stub{}
		engine, err := NewEngine(EngineConfig{
			Stores: map[string]driver.Delivery{"quiet": stub{}, "db": s}, Brokers: map[string]Target{"b": {Broker: taker{}}}, Listen: []string{"db"},
		})
		require.NoError(t, err)
		states := func() []ListenerState { return []ListenerState{engine.Stats()[0].Listener, engine.Stats()[1].Listener} }
		assert.Equal(t, []ListenerState{ListenerDisconnected, ListenerOff}, states())
		stop := running(t, engine.Run)
		synctest.Wait()
		assert.Equal(t, []ListenerState{ListenerConnected, ListenerOff}, states())
		stop()
		assert.Equal(t, []ListenerState{ListenerDisconnected, ListenerOff}, states())
	})
}
