package brokertest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/signature"
	"github.com/gorm-fanout/fanout/envelope"
)

func (s *suite) roundTrip(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	full := message(destination, "brokertest::case-1", 1)
	full.Priority = 50
	full.CorrelationID = "5f2b3c1e-correlation"
	full.Attributes = []brokers.Attribute{
		{Name: brokers.FieldTraceParent, Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{Name: brokers.FieldTraceState, Value: "vendor=value"},
		{Name: "tenant_id", Value: "acme"},
	}
	bare := brokers.Message{ID: message("", "", 0).ID, Destination: destination, Type: "T.v1", Payload: []byte("{}")}

	capabilities := b.Capabilities()
	s.succeed(t, b, []brokers.Message{full})
	s.succeed(t, b, []brokers.Message{bare})
	received := s.arrived(t, destination, 2)
	require.Len(t, received, 2)
	if received[0].ID != full.ID { // without a common key, no order was promised
		slices.Reverse(received)
	}
	equal(t, full, received[0])
	equal(t, bare, received[1])
	assert.Equal(t, capabilities, b.Capabilities(), "capabilities do not change")
}

// bulk: one result per message, whatever the size of the bulk, and the messages are left alone.
func (s *suite) bulk(t *testing.T) {
	b := s.open(t)
	for _, n := range []int{1, 2, 99, 100, 101, 1234} {
		destination := s.Destination(t)
		msgs := messages(destination, n, append(keys(7), "")...)
		before := slices.Clone(msgs)
		for i := range before {
			before[i].Payload = bytes.Clone(msgs[i].Payload)
		}
		given := map[string]bool{}
		for _, result := range s.succeed(t, b, msgs) {
			if id := result.BrokerMessageID; id != "" {
				require.False(t, given[id], "broker message id %q was given twice", id)
				given[id] = true
			}
		}
		require.Equal(t, before, msgs, "Publish must not modify messages")
		received := s.arrived(t, destination, n)
		require.Len(t, received, n)
		inOrder(t, msgs, received)
	}
}

func (s *suite) empty(t *testing.T) {
	b := s.open(t)
	assert.Empty(t, s.publish(t, b, nil))
	assert.Empty(t, s.publish(t, b, []brokers.Message{}))
}

// textAndBytes: payloads are bytes, not text; flat fields and keys are text of any script, and what
// the broker does not take of the optional ones is named.
func (s *suite) textAndBytes(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	var every []byte
	for c := range 256 {
		every = append(every, byte(c))
	}
	payloads := [][]byte{
		every,
		[]byte("\xff\xfe not UTF-8 \xc3\x28"),
		[]byte("line\r\nline\x00\x00$5\r\n*3\r\n"),
		[]byte("naïve 日本語 🚀"),
		bytes.Repeat([]byte{0}, 100_000),
		{},
	}
	msgs := messages(destination, len(payloads), "ordering::order-Ωmega,日本 \"%{}'\\")
	for i := range msgs {
		msgs[i].Payload = payloads[i]
		msgs[i].CorrelationID = "корреляция " + strings.Repeat("x", i)
		msgs[i].Attributes = []brokers.Attribute{{Name: "naïve-имя", Value: "値 \t\n 🚀"}, {Name: "empty", Value: ""}}
	}
	results := s.succeed(t, b, msgs)
	received := s.arrived(t, destination, len(msgs))
	require.Len(t, received, len(msgs))
	for i := range msgs {
		if !s.OmitsText {
			require.Empty(t, results[i].Omitted)
		}
		equal(t, without(msgs[i], results[i].Omitted), received[i])
	}
}

// without is the message without the optional fields that its result names.
func without(m brokers.Message, omitted []string) brokers.Message {
	if slices.Contains(omitted, brokers.FieldCorrelationID) {
		m.CorrelationID = ""
	}
	m.Attributes = slices.DeleteFunc(slices.Clone(m.Attributes), func(a brokers.Attribute) bool { return slices.Contains(omitted, a.Name) })
	return m
}

// optionalFields: whatever stands in the fields that a message can do without, it arrives; with
// those that the broker takes, and its result names the others.
func (s *suite) optionalFields(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	many := make([]brokers.Attribute, 1200)
	for i := range many {
		many[i] = brokers.Attribute{Name: fmt.Sprintf("a%04d", i), Value: "x"}
	}
	cases := [][]brokers.Attribute{
		{{Name: brokers.FieldTraceParent, Value: "not-a-parent"}, {Name: brokers.FieldTraceState, Value: strings.Repeat("a=b,", 2_000)}},
		{{Name: "value-" + strings.Repeat("n", 300), Value: "x"}, {Name: "fits", Value: "x"}},
		{{Name: "long", Value: strings.Repeat("v", 20_000)}, {Name: "fits", Value: "x"}},
		many,
		{{Name: "text", Value: "\xff\xfe"}, {Name: "name\xff", Value: "x"}},
		{{Name: "ends", Value: "a\r\nid: 1\r\n\r\n"}, {Name: "na\r\nme: x", Value: "x"}, {Name: "nul", Value: "a\x00b"}},
		{{Name: "googclient_deliveryattempt", Value: "1"}, {Name: "data", Value: "x"}, {Name: "Nats-Msg-Id-2", Value: "x"}, {Name: "a b:c", Value: " x "}},
	}
	msgs := messages(destination, len(cases)+2, "brokertest::optional")
	for i, attributes := range cases {
		msgs[i].Attributes = attributes
	}
	msgs[len(cases)].CorrelationID = strings.Repeat("c", 3_000)
	msgs[len(cases)+1].CorrelationID = "\xff"
	results := s.succeed(t, b, msgs)
	received := s.arrived(t, destination, len(msgs))
	require.Len(t, received, len(msgs))
	inOrder(t, msgs, received)
	for i, got := range received {
		want := without(msgs[i], results[i].Omitted)
		require.Equal(t, want.ID, got.ID)
		require.Equal(t, want.Type, got.Type)
		require.True(t, bytes.Equal(want.Payload, got.Payload), "message %d", i)
		require.Equal(t, want.CorrelationID, got.CorrelationID)
		require.Equal(t, sorted(want.Attributes), sorted(got.Attributes), "message %d: what is not there is named", i)
	}
}

// signature: that of a relay arrives as it was sent, however many other attributes there are, and the
// message verifies at the consumer.
func (s *suite) signature(t *testing.T) {
	var relay, partner signature.Keys
	for i := range 4 { // as many as a relay may have, with the longest ids
		seed := bytes.Repeat([]byte{byte(i)}, ed25519.SeedSize)
		public, _ := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
		id := strings.Repeat(fmt.Sprint(i), 64)
		require.NoError(t, relay.Add(id, "whsk_"+base64.StdEncoding.EncodeToString(seed)))
		require.NoError(t, partner.Add(id, "whpk_"+base64.StdEncoding.EncodeToString(public)))
	}
	b, destination := s.open(t), s.Destination(t)
	msgs := messages(destination, 3, "brokertest::signed")
	msgs[0].Payload = []byte("\xff\xfe not UTF-8 \x00\r\n")
	msgs[1].Attributes = []brokers.Attribute{{Name: brokers.FieldTraceParent, Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	for i := range 1200 {
		msgs[2].Attributes = append(msgs[2].Attributes, brokers.Attribute{Name: fmt.Sprintf("a%04d", i), Value: "x"})
	}
	for i := range msgs {
		relay.Sign(&msgs[i], time.Unix(999_999_999_999, 0))
	}
	results := s.succeed(t, b, msgs)
	received := s.arrived(t, destination, len(msgs))
	require.Len(t, received, len(msgs))
	inOrder(t, msgs, received)
	for i, got := range received {
		require.NotContains(t, results[i].Omitted, brokers.FieldSignature)
		_, err := partner.Verify(destination, maps.Collect(got.Fields), got.Payload)
		require.NoError(t, err, "message %d", i)
	}
}

// longestKey: an outbox's ordering keys have up to 512 bytes.
func (s *suite) longestKey(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	msgs := messages(destination, 9, strings.Repeat("k", envelope.MaxOrderingKeyBytes), strings.Repeat("ü", envelope.MaxOrderingKeyBytes/2), strings.Repeat("🔑", envelope.MaxOrderingKeyBytes/4))
	for i, result := range s.succeed(t, b, msgs) {
		require.Empty(t, result.Omitted, "message %d", i)
	}
	received := s.arrived(t, destination, len(msgs))
	require.Len(t, received, len(msgs))
	inOrder(t, msgs, received)
}

// duplicateID: a repeated id is a redelivery. The broker may drop it, but must not fail.
func (s *suite) duplicateID(t *testing.T) {
	b, destination := s.open(t), s.Destination(t)
	m, next := message(destination, "k", 1), message(destination, "k", 2)
	s.succeed(t, b, []brokers.Message{m, m})
	s.succeed(t, b, []brokers.Message{m, next})
	s.eventually(t, "the message after the duplicates", func() bool { return s.seen(t, []brokers.Message{next})[next.ID] == 1 })
	inOrder(t, []brokers.Message{m, next}, s.Received(t, destination))
}

// veryLargeBulk: one call with far more, and far larger, messages than any broker takes at once.
func (s *suite) veryLargeBulk(t *testing.T) {
	const n, large = 3_000, 60
	b, destination := s.open(t), s.Destination(t)
	msgs := messages(destination, n, append(keys(500), "", "")...)
	size := 200_000
	if limit := b.Capabilities().MaxMessageBytes; limit > 0 {
		size = min(size, limit)
	}
	for i := 0; i < n; i += n / large {
		msgs[i].Payload = bytes.Repeat([]byte{byte(i)}, size)
	}
	s.succeed(t, b, msgs)
	received := s.arrived(t, destination, n)
	assert.Len(t, received, n, "each message once")
	inOrder(t, msgs, received)
	place := make(map[string]int, n)
	for i, m := range msgs {
		place[m.ID] = i
	}
	for _, m := range received {
		require.True(t, bytes.Equal(msgs[place[m.ID]].Payload, m.Payload), "message %d arrives as it was", place[m.ID])
	}
}
