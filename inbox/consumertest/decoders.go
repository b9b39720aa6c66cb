package consumertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// decoder: a decoder makes events of foreign messages, which are handled in the order of their key;
// what it refuses, or panics at, costs that message alone, and what it is not for is read as ever.
func (s *suite) decoder(t *testing.T, source *Source) {
	if source.PublishForeign == nil {
		t.Skip("NOT TESTED: PublishForeign of the source is nil")
	}
	var (
		mu   sync.Mutex
		outs int
	)
	settings := usual()
	settings.HasDeadLetters = true
	settings.Decoder = func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
		if raw.Source == "" || raw.Position == "" {
			t.Error("it has a source and a position")
		}
		switch text := string(raw.Payload); text {
		case "skip":
			return nil, inbox.ErrSkip
		case "panic":
			panic("no")
		case "refuse":
			return nil, errors.New("no")
		case "unnamed":
			return &envelope.CloudEvent{Type: handledType}, nil
		case "out":
			mu.Lock()
			defer mu.Unlock()
			if outs++; outs < 4 {
				return nil, inbox.Unavailable(errors.New("out"))
			}
			fallthrough
		case "event":
			return &envelope.CloudEvent{ID: raw.OrderingKey + text, Type: handledType, Data: []byte(`{"key":"` + raw.OrderingKey + `","n":1}`)}, nil
		}
		return nil, nil //nolint:nilnil // it is another's
	}
	keys := []string{"skip", "panic", "refuse", "unnamed", "out", "event"}
	for _, key := range keys {
		source.Publish(t, message(key, 0))
		source.PublishForeign(t, key, []byte(key), nil)
		source.Publish(t, message(key, 2))
	}
	l := newLedger(t, nil)
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return len(l.firsts()) == 2*len(keys)+2 }, "all are done")
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	stats := p.Stats()
	accounted(t, source, []int{2*len(keys) + 2, 1, 3}, &stats)
	for _, key := range []string{"out", "event"} {
		of := slices.DeleteFunc(l.firsts(), func(it seen) bool { return it.key != key })
		s.same(t, []seen{{key, 0}, {key, 1}, {key, 2}}, of)
	}
	for _, letter := range source.DeadLetters(t) {
		assert.Contains(t, map[string]string{
			"panic": "inbox: the decoder panicked: no", "refuse": "no", "unnamed": "inbox: the decoder's event has no ID: set it",
		}[string(letter.Payload)], letter.Reason)
	}
}

// decoderKeepsOrder: while the decoder is out for a message, what is behind it in the broker's own key
// waits, although the decoder names another key for all of them.
func (s *suite) decoderKeepsOrder(t *testing.T, source *Source) {
	if source.PublishForeign == nil {
		t.Skip("NOT TESTED: PublishForeign of the source is nil")
	}
	const most = 5
	var asked atomic.Int64
	settings := usual()
	settings.Decoder = func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
		if string(raw.Payload) == "0" && asked.Add(1) < 4 {
			return nil, inbox.Unavailable(errors.New("out"))
		}
		return &envelope.CloudEvent{
			ID: string(raw.Payload), Type: handledType, PartitionKey: "customer", Data: []byte(`{"key":"row","n":` + string(raw.Payload) + `}`),
		}, nil
	}
	var want []seen
	for n := range most {
		source.PublishForeign(t, "row", fmt.Append(nil, n), nil)
		want = append(want, seen{"row", n})
	}
	l := newLedger(t, nil)
	p := s.start(t, source, l, settings)
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	assert.Equal(t, want, l.finished())
}

// decoded is an event of the suite made of a foreign message, which holds key and number, as
// publishNumbers has written it.
func decoded(raw *inbox.RawMessage) *envelope.CloudEvent {
	key, n, _ := strings.Cut(string(raw.Payload), " ")
	return &envelope.CloudEvent{
		ID: string(raw.Payload), Type: handledType, PartitionKey: key, Data: fmt.Appendf(nil, `{"key":%q,"n":%s}`, key, n),
	}
}

// publishNumbers adds ten foreign messages of each key by turns. With own, the broker has
// their key, too; else the decoder alone knows it.
func publishNumbers(t *testing.T, source *Source, own bool, keys ...string) {
	t.Helper()
	for n := range 10 {
		for _, key := range keys {
			known := ""
			if own {
				known = key
			}
			source.PublishForeign(t, known, fmt.Append(nil, key, " ", n), nil)
		}
	}
}

// decoderIsSlow: a decoder that takes longer for all that is claimed than a claim lasts costs nothing
// but time: no message comes to another process meanwhile.
func (s *suite) decoderIsSlow(t *testing.T, source *Source) {
	if source.PublishForeign == nil {
		t.Skip("NOT TESTED: PublishForeign of the source is nil")
	}
	settings := usual()
	settings.Decoder = func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
		time.Sleep(20 * time.Millisecond)
		return decoded(raw), nil
	}
	publishNumbers(t, source, true, "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7")
	publishNumbers(t, source, false, "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7")
	l := newLedger(t, nil)
	l.overlaps = true // the server deals out what has no key of its own
	first, second := s.start(t, source, l, settings), s.start(t, source, l, settings)
	s.eventually(t, func() bool { return len(l.firsts()) == 160 }, "all are done")
	s.confirmed(t, source)
	require.NoError(t, first.stop())
	require.NoError(t, second.stop())
	assert.Len(t, l.finished(), 160, "each once")
	for n := range 8 {
		key := fmt.Sprint("k", n)
		of := slices.DeleteFunc(l.firsts(), func(it seen) bool { return it.key != key })
		assert.True(t, !s.Together || slices.IsSortedFunc(of, func(a, b seen) int { return a.n - b.n }), "the order of %s", key)
	}
}

// stopAsksNoDecoder: a stop gives back what is not decoded yet.
func (s *suite) stopAsksNoDecoder(t *testing.T, source *Source) {
	if source.PublishForeign == nil {
		t.Skip("NOT TESTED: PublishForeign of the source is nil")
	}
	var asked atomic.Int64
	let := make(chan struct{})
	settings := usual()
	settings.Decoder = func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
		asked.Add(1)
		<-let
		return decoded(raw), nil
	}
	publishNumbers(t, source, true, "k0", "k1", "k2", "k3")
	publishNumbers(t, source, false, "d0", "d1", "d2", "d3")
	l := newLedger(t, nil)
	l.overlaps = true // the server deals out what has no key of its own
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return asked.Load() > 0 && p.Stats().Claimed >= 40 }, "they are claimed")
	stopped := make(chan error, 1)
	go func() { stopped <- p.stop() }()
	s.eventually(t, func() bool { return p.Stats().Nacked > 0 }, "it stops")
	before := asked.Load()
	close(let)
	require.NoError(t, <-stopped)
	assert.LessOrEqual(t, asked.Load()-before, int64(settings.Workers))
	source.expire(t)
	s.start(t, source, l, settings)
	s.eventually(t, func() bool { return len(l.firsts()) == 80 }, "all are done")
}
