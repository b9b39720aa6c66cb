package relay

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// history remembers, for failure classification, at which messages an outage of the broker was
// noticed, and when messages were last delivered. All workers of a processor share it.
type history struct {
	count    atomic.Int64 // of met: as a rule there are none, and that costs no lock to know
	suspects atomic.Int64 // of these and of refused messages
	mu       sync.Mutex
	met      map[int64]time.Time // by row id; see evidence
	passed   time.Time           // see evidence
	refusals refusals
}

// maxHistory bounds the messages in a history. Those forgotten are noticed again.
const maxHistory = 1000

// knows reports whether a message has met an outage before, or the implementation broke down at it. It
// gets a call of its own then.
func (h *history) knows(id int64) bool {
	if h.suspects.Load() == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, met := h.met[id]
	return met || h.refusals.known[id].broke
}

// of is the evidence for a call.
func (h *history) of(call *Call) evidence {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, known := h.met[call.Messages[0].ID]
	return evidence{known: known, since: since, passed: h.passed, refused: h.refusals.of(call)}
}

// learn remembers what a call has shown.
func (h *history) learn(call *Call, c *classification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range call.Messages {
		one := &c.messages[i]
		_, known := h.met[m.ID]
		switch {
		case one.verdict == verdictPublished:
			delete(h.met, m.ID)
			if call.Began.After(h.passed) {
				h.passed = call.Began
			}
		case i != c.alone:
		case c.charged:
			delete(h.met, m.ID) // and it begins anew
		case !known:
			h.note(m.ID, time.Now())
		}
	}
	h.refusals.learn(call, c)
	h.count.Store(int64(len(h.met)))
	h.suspects.Store(int64(len(h.met) + len(h.refusals.known)))
}

func (h *history) note(id int64, at time.Time) {
	if h.met == nil || len(h.met) >= maxHistory {
		h.met = make(map[int64]time.Time)
	}
	h.met[id] = at
}

// probeLimit is how many messages that nothing is known against try out what was unavailable.
func (h *history) probeLimit() int {
	if h.suspects.Load() > h.count.Load() {
		return refusedLimit
	}
	return probeLimit
}

// probes are how many messages may be sent in a try, and any number in what is none.
func (h *history) probes(try bool) probes {
	if try {
		return probes{h.probeLimit(), probeLimit}
	}
	return probes{-1, -1}
}

// suspectsLast moves messages that met an outage before, or were refused, behind the others, and with
// them what is behind them on their keys: a try must not spend itself on those. It returns them; nil,
// as a rule: there are none.
func (h *history) suspectsLast(messages []driver.Message, unordered bool) map[int64]bool {
	if h.suspects.Load() == 0 {
		return nil
	}
	suspects, keys := map[int64]bool{}, map[string]bool{}
	h.mu.Lock()
	for i := range messages {
		m := &messages[i]
		_, met := h.met[m.ID]
		_, refused := h.refusals.known[m.ID]
		keyed := m.OrderingKey != "" && !unordered
		if met || refused || keyed && keys[m.OrderingKey] {
			suspects[m.ID] = true
			keys[m.OrderingKey] = keyed
		}
	}
	h.mu.Unlock()
	slices.SortStableFunc(messages, func(a, b driver.Message) int {
		switch {
		case suspects[a.ID] == suspects[b.ID]:
			return 0
		case suspects[a.ID]:
			return 1
		default:
			return -1
		}
	})
	return suspects
}
