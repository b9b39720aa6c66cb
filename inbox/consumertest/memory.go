package consumertest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// footprint is what handlers were given, and is still in memory.
type footprint struct {
	mu       sync.Mutex
	messages []weak.Pointer[inbox.Message]
	payloads []weak.Pointer[byte]
}

func (f *footprint) add(m *inbox.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = append(f.messages, weak.Make(m))
	f.payloads = append(f.payloads, weak.Make(&m.Payload[0]))
}

// kept are the figures after a garbage collection.
func (f *footprint) kept() (messages, payloads int) {
	runtime.GC()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = slices.DeleteFunc(f.messages, func(p weak.Pointer[inbox.Message]) bool { return p.Value() == nil })
	f.payloads = slices.DeleteFunc(f.payloads, func(p weak.Pointer[byte]) bool { return p.Value() == nil })
	return len(f.messages), len(f.payloads)
}

// Many messages of other keys pass one that fails for as long as it takes. All of them are handled,
// and nothing of them stays in memory: neither as what is claimed, nor as what is not confirmed
// yet. Nor does what came before it in its own key.
func (s *suite) othersPassAHeldMessage(t *testing.T, source *Source) {
	const rounds, each = 5, 20
	keys := []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", ""}
	held := seen{"held", 9}
	var healed atomic.Bool
	var others footprint
	l := newLedger(t, func(_ context.Context, m *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it == held {
			if !healed.Load() {
				return "", inbox.Unavailable(errors.New("out"))
			}
			return inbox.Handled, nil
		}
		others.add(m)
		return inbox.Handled, nil
	})
	settings := usual()
	settings.MaxOutstandingMessages = 20
	first := messages(0, held.n+1, held.key) // some share a batch with others, where the broker has such
	p := s.start(t, source, l, settings)
	for round := range rounds {
		source.Publish(t, append(first, messages(round*each, (round+1)*each, keys...)...)...)
		first = nil
		s.eventually(t, func() bool { return len(l.firsts()) == (round+1)*each*len(keys)+held.n }, "round %d: all others are done", round)
	}
	s.eventually(t, func() bool { return p.Stats().Claimed == 1 }, "it alone is claimed")
	s.eventually(t, func() bool {
		messages, payloads := others.kept()
		return messages <= settings.Workers && payloads <= settings.Workers
	}, "nothing of the others is in memory")
	assert.GreaterOrEqual(t, source.Unconfirmed(t), 1)
	healed.Store(true)
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	l.inOrder(t)
	assert.Len(t, l.finished(), rounds*each*len(keys)+held.n+1, "each once")
}
