package consumertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// selective is a handler that skips what is not of the suite's type, as inbox.Handlers do.
type selective struct{ *ledger }

// Skips implements [inbox.Skipper].
func (selective) Skips(wireType string) bool { return wireType != handledType }

// Handle implements [inbox.Handler].
func (s selective) Handle(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
	if s.Skips(m.Type) {
		return inbox.Skipped, nil
	}
	return s.ledger.Handle(ctx, m)
}

// keeping is one that keeps messages which cannot be read, as inbox.Handlers do.
type keeping struct {
	selective

	mu   sync.Mutex
	kept map[string][]string // the payloads by key
}

// Reject implements [inbox.Rejecter].
func (k *keeping) Reject(_ context.Context, m *inbox.Message, why error) (inbox.Outcome, error) {
	if why == nil || m.Consumer == "" || m.Source == "" {
		return "", inbox.Unavailable(errors.New("there is something missing"))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[string][]string{}
	}
	key := m.Key.String()
	if !slices.Contains(k.kept[key], string(m.Payload)) { // what comes again is kept once
		k.kept[key] = append(k.kept[key], string(m.Payload))
	}
	return inbox.DeadLettered, nil
}

// publishForeign puts each shape between two good messages of a key of its own, and returns how many
// there are of each fate.
func publishForeign(t *testing.T, source *Source) (of map[fate]int) {
	t.Helper()
	if source.PublishForeign == nil {
		t.Skip("NOT TESTED: PublishForeign of the source is nil")
	}
	of = map[fate]int{}
	all := shapes()
	require.GreaterOrEqual(t, len(all), 21)
	for i := range all {
		s := &all[i]
		source.Publish(t, message(s.name, 0))
		source.PublishForeign(t, s.name, s.payload, s.attributes)
		of[s.fate]++
	}
	for i := range all {
		source.Publish(t, message(all[i].name, 1))
	}
	return of
}

// goOn waits until the good messages of all keys are handled, in their order, but for keys that
// wait for a message which its handler may be fixed for.
func (s *suite) goOn(t *testing.T, l *ledger, but ...fate) {
	t.Helper()
	all := slices.DeleteFunc(shapes(), func(shape shape) bool { return slices.Contains(but, shape.fate) })
	s.eventually(t, func() bool {
		done := l.firsts()
		return !slices.ContainsFunc(all, func(shape shape) bool { return !slices.Contains(done, seen{shape.name, 1}) })
	}, "each key goes on")
	if !s.Shuffles {
		next := map[string]int{}
		for _, it := range l.firsts() {
			if it.n < 2 {
				assert.Equal(t, next[it.key], it.n, "key %s", it.key)
				next[it.key]++
			}
		}
	}
}

// accounted requires that so many messages were handled, skipped and forwarded, so that each has become
// one of these; more where claims are so short that a message may come again to a slow machine.
func accounted(t *testing.T, source *Source, want []int, stats *inbox.ConsumerStats) {
	t.Helper()
	for i, n := range []int64{stats.Handled, stats.Skipped, stats.Forwarded} {
		what := []string{"handled", "skipped", "forwarded"}[i]
		if source.Lease > 0 {
			assert.GreaterOrEqual(t, n, int64(want[i]), what)
		} else {
			assert.Equal(t, int64(want[i]), n, what)
		}
	}
}

// foreign messages go to the dead letters by default, those of types that are not handled are
// skipped, and no key waits for them. Each is accounted for.
func (s *suite) foreign(t *testing.T, source *Source) {
	of := publishForeign(t, source)
	l := newLedger(t, nil)
	settings := usual()
	settings.HasDeadLetters = true
	p := s.start(t, source, selective{l}, settings)
	s.goOn(t, l)
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	stats := p.Stats()
	accounted(t, source, []int{2*len(shapes()) + of[good], of[otherType], of[unreadable] + of[failing]}, &stats)
	assert.GreaterOrEqual(t, stats.Unreadable, int64(of[unreadable]))
	letters := source.DeadLetters(t)
	require.GreaterOrEqual(t, len(letters), of[unreadable]+of[failing])
	for _, shape := range shapes() {
		if shape.fate == unreadable {
			assert.True(t, slices.ContainsFunc(letters, func(letter DeadLetter) bool {
				return string(letter.Payload) == string(shape.payload) && letter.Reason != ""
			}), "the dead letter of %s is as it was, with a reason", shape.name)
		}
	}
}

// foreignSkipped: where the consumer is to skip what it cannot read, there are no dead letters of it.
func (s *suite) foreignSkipped(t *testing.T, source *Source) {
	of := publishForeign(t, source)
	l := newLedger(t, nil)
	var j journal
	settings := usual()
	settings.HasDeadLetters, settings.Unreadable, settings.Log = true, inbox.UnreadableSkip, j.logger()
	p := s.start(t, source, selective{l}, settings)
	s.goOn(t, l)
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	stats := p.Stats()
	accounted(t, source, []int{2*len(shapes()) + of[good], of[otherType] + of[unreadable], of[failing]}, &stats)
	for _, letter := range source.DeadLetters(t) {
		assert.True(t, slices.ContainsFunc(shapes(), func(shape shape) bool {
			return shape.fate == failing && string(letter.Payload) == string(shape.payload)
		}), "%q is no dead letter", letter.Payload)
	}
	assert.Positive(t, j.count("unreadable message skipped"), "the log says so")
}

// foreignKept: where the broker has no place for them, the handler keeps them.
func (s *suite) foreignKept(t *testing.T, source *Source) {
	if s.AlwaysDeadLetters {
		t.Skip("there is always a place for dead letters")
	}
	of := publishForeign(t, source)
	l := newLedger(t, nil)
	k := &keeping{selective: selective{l}}
	p := s.start(t, source, k, usual())
	s.goOn(t, l, failing)
	s.eventually(t, func() bool { return p.Stats().DeadLettered >= int64(of[unreadable]) }, "they are kept")
	require.NoError(t, p.stop())
	k.mu.Lock()
	defer k.mu.Unlock()
	var kept []string
	for key, payloads := range k.kept {
		assert.Len(t, payloads, 1, "key %s is that of one message", key)
		kept = append(kept, payloads...)
	}
	for _, shape := range shapes() {
		assert.True(t, shape.fate != unreadable || slices.Contains(kept, string(shape.payload)), "%s is kept", shape.name)
	}
}

// foreignHeld: without any place at all they are held, and keys do not wait for them; nothing is
// confirmed that was not done.
func (s *suite) foreignHeld(t *testing.T, source *Source) {
	if s.AlwaysDeadLetters {
		t.Skip("there is always a place for dead letters")
	}
	of := publishForeign(t, source)
	l := newLedger(t, nil)
	p := s.start(t, source, selective{l}, usual())
	s.eventually(t, func() bool { return p.Stats().Held == int64(of[unreadable]+of[failing]) }, "they are held")
	assert.GreaterOrEqual(t, source.Unconfirmed(t), of[unreadable]+of[failing])
	if !s.OneOfAKey {
		s.goOn(t, l, failing)
	}
	require.NoError(t, p.stop())
	source.expire(t)
	settings := usual()
	settings.HasDeadLetters = true
	p = s.start(t, source, selective{l}, settings)
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	assert.GreaterOrEqual(t, len(source.DeadLetters(t)), of[unreadable]+of[failing])
}
