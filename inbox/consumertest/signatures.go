package consumertest

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// signatures: a decoder gets what it needs to verify a message, as it was signed. One that was changed, or
// is not signed, is a dead letter, and the others are handled.
func (s *suite) signatures(t *testing.T, source *Source) {
	if source.PublishForeign == nil {
		t.Skip("NOT TESTED: PublishForeign of the source is nil")
	}
	const destination, most = "ordering::order", 5
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public, _ := private.Public().(ed25519.PublicKey)
	var producer, partner signature.Keys
	require.NoError(t, producer.Add("2026-11", "whsk_"+base64.StdEncoding.EncodeToString(private)))
	require.NoError(t, partner.Add("2026-11", "whpk_"+base64.StdEncoding.EncodeToString(public)))
	settings := usual()
	settings.HasDeadLetters = true
	settings.Decoder = func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
		if _, err := partner.Verify(destination, raw.Attributes, raw.Payload); err != nil {
			return nil, err
		}
		return &envelope.CloudEvent{ID: raw.Attributes[brokers.FieldID], Type: raw.Attributes[brokers.FieldType], Data: raw.Payload}, nil
	}
	publish := func(n int, change func(m *brokers.Message)) {
		m := brokers.Message{ID: uuid.NewString(), Type: handledType, Destination: destination, Payload: fmt.Appendf(nil, `{"key":"k","n":%d}`, n)}
		producer.Sign(&m, time.Now())
		change(&m)
		source.PublishForeign(t, "k", m.Payload, maps.Collect(m.Fields))
	}
	var want []seen
	for n := range most {
		publish(n, func(*brokers.Message) {})
		publish(90, func(m *brokers.Message) { m.Payload = []byte(`{"key":"k","n":91}`) })
		publish(92, func(m *brokers.Message) { m.Attributes = nil })
		want = append(want, seen{"k", n})
	}
	l := newLedger(t, nil)
	p := s.start(t, source, l, settings)
	s.eventually(t, func() bool { return len(l.firsts()) == most }, "all that are signed are done")
	s.confirmed(t, source)
	require.NoError(t, p.stop())
	s.same(t, want, l.firsts())
	letters := source.DeadLetters(t)
	assert.Len(t, letters, 2*most)
	for _, letter := range letters {
		assert.Contains(t, letter.Reason, "signature: the ")
	}
}
