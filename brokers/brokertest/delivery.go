package brokertest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
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

// textAndBytes: payloads are bytes, not text; flat fields and keys are text of any script.
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
	s.succeed(t, b, msgs)
	received := s.arrived(t, destination, len(msgs))
	require.Len(t, received, len(msgs))
	for i := range msgs {
		equal(t, msgs[i], received[i])
	}
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

// tenThousand: several callers, bulks of 500, and nothing is lost.
func (s *suite) tenThousand(t *testing.T) {
	const callers, each, size = 4, 2500, 500
	b, destination := s.open(t), s.Destination(t)
	var all []brokers.Message
	parts := make([][]brokers.Message, callers)
	for i := range parts {
		parts[i] = messages(destination, each, keys(callers * 25)[i*25:(i+1)*25]...)
		all = append(all, parts[i]...)
	}
	together(callers, func(i int) {
		for bulk := range slices.Chunk(parts[i], size) {
			for _, result := range b.Publish(t.Context(), bulk) {
				assert.NoError(t, result.Err)
			}
		}
	})
	received := s.arrived(t, destination, len(all))
	assert.Len(t, received, len(all), "each message once")
	inOrder(t, all, received)
}

// veryLargeBulk: one call with far more, and far larger, messages than any broker takes at once.
func (s *suite) veryLargeBulk(t *testing.T) {
	const n, large = 12_000, 60
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
