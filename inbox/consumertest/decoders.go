package consumertest

import (
	"errors"
	"slices"
	"sync"
	"testing"

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
