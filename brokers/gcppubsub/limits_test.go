package gcppubsub_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

func attribute(name, value string) func(*brokers.Message) {
	return func(m *brokers.Message) {
		m.Attributes = append(m.Attributes, brokers.Attribute{Name: name, Value: value})
	}
}

// attributes adds n attributes; a message has three of its own here.
func attributes(n int) func(*brokers.Message) {
	return func(m *brokers.Message) {
		for i := range n {
			attribute(fmt.Sprint("a", i), "x")(m)
		}
	}
}

func TestLimits(t *testing.T) {
	everywhere(t, testLimits)
}

func testLimits(t *testing.T, s site) {
	t.Helper()
	s.createTopic(t, "orders")
	b := s.open(t)
	for name, c := range map[string]struct {
		within, beyond func(*brokers.Message)
		says           string
	}{
		"ordering key": {
			func(m *brokers.Message) { m.OrderingKey = strings.Repeat("k", 1024) },
			func(m *brokers.Message) { m.OrderingKey = strings.Repeat("k", 1025) }, "the ordering key has 1025 bytes",
		},
		"bytes": {
			func(m *brokers.Message) { m.Payload = make([]byte, 9_999_800) },
			func(m *brokers.Message) { m.Payload = make([]byte, 9_999_990) }, "(the payload 9999990), Pub/Sub takes 10000000",
		},
		"key": {func(*brokers.Message) {}, func(m *brokers.Message) { m.OrderingKey = "\xff" }, "the ordering key \"\\xff\" is not valid UTF-8"},
		"type": {
			func(m *brokers.Message) { m.Type = strings.Repeat("t", 1024) },
			func(m *brokers.Message) { m.Type = strings.Repeat("t", 1025) }, `the value of the attribute "type" has 1025 bytes, Pub/Sub takes 1024`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msgs := []brokers.Message{message("orders", "", 0), message("orders", "", 1), message("orders", "", 2)}
			c.within(&msgs[1])
			require.Equal(t, map[string]int{"": 3}, verdicts(b.Publish(t.Context(), msgs)))

			msgs[1] = message("orders", "", 1)
			c.beyond(&msgs[1])
			results := b.Publish(t.Context(), msgs)
			assert.Equal(t, map[string]int{"": 2, "permanent": 1}, verdicts(results))
			require.ErrorContains(t, results[1].Err, c.says)
			assert.Less(t, len(results[1].Err.Error()), 400)
		})
	}
}

// TestOptional: what Pub/Sub would refuse a message for, and the message can do without, is left
// out and named; one byte less arrives.
func TestOptional(t *testing.T) {
	everywhere(t, testOptional)
}

func testOptional(t *testing.T, s site) {
	t.Helper()
	b := s.open(t)
	count := 0
	for name, c := range map[string]struct {
		within, beyond func(*brokers.Message)
		omitted        []string
	}{
		"attributes": {attributes(98), attributes(100), []string{"a98", "a99"}},
		"CloudEvents": {
			func(m *brokers.Message) { attributes(96)(m); m.ContentType = "application/cloudevents+json" },
			func(m *brokers.Message) {
				attributes(98)(m)
				m.Attributes[0].Name, m.ContentType = "Content-Type", "application/cloudevents+json" // its own goes first
			},
			[]string{"Content-Type", "a97"},
		},
		"name":           {attribute(strings.Repeat("n", 256), "x"), attribute(strings.Repeat("n", 257), "x"), []string{strings.Repeat("n", 257)}},
		"value":          {attribute("v", strings.Repeat("x", 1024)), attribute("v", strings.Repeat("x", 1025)), []string{"v"}},
		"tracestate":     {attribute("tracestate", strings.Repeat("x", 512)), attribute("tracestate", strings.Repeat("x", 8000)), []string{"tracestate"}},
		"correlation id": {func(m *brokers.Message) { m.CorrelationID = strings.Repeat("c", 1024) }, func(m *brokers.Message) { m.CorrelationID = strings.Repeat("c", 1025) }, []string{"correlation_id"}},
		"text":           {attribute("v", "naïve"), attribute("v", "\xff"), []string{"v"}},
		"name's text":    {attribute("naïve", "v"), attribute("\xff", "v"), []string{"\xff"}},
		"Google's":       {attribute("good", "v"), attribute("googclient_deliveryattempt", "v"), []string{"googclient_deliveryattempt"}},
		"no name":        {func(*brokers.Message) {}, attribute("", "x"), []string{""}},
		"bytes": {
			func(m *brokers.Message) {
				m.Payload = make([]byte, 9_998_000)
				attribute("v", strings.Repeat("x", 1000))(m)
			},
			func(m *brokers.Message) {
				m.Payload = make([]byte, 9_999_700)
				attribute("v", strings.Repeat("x", 1000))(m)
			},
			[]string{"v"},
		},
	} {
		count++
		destination := fmt.Sprint("orders", count)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.createTopic(t, destination)
			msgs := []brokers.Message{message(destination, "k", 0), message(destination, "k", 1), message(destination, "k", 2)}
			c.within(&msgs[0])
			c.beyond(&msgs[1])
			results := b.Publish(t.Context(), msgs)
			require.Equal(t, map[string]int{"": 3}, verdicts(results))
			assert.Empty(t, results[0].Omitted)
			assert.Equal(t, c.omitted, results[1].Omitted)
			got := s.received(t, destination)
			require.Len(t, got, 3)
			assert.Equal(t, msgs[1].Payload, got[1].Payload)
			assert.Equal(t, msgs[1].ID, got[1].ID)
			own := min(1, len(msgs[1].CorrelationID))
			if msgs[1].ContentType != brokers.DefaultContentType {
				own++
			}
			assert.Len(t, got[1].Attributes, len(msgs[1].Attributes)-len(c.omitted)+own)
		})
	}
}

// A message that is too large with its attributes goes without them, but never without its signature.
func TestSignatureStays(t *testing.T) {
	everywhere(t, func(t *testing.T, s site) {
		t.Helper()
		s.createTopic(t, "signed")
		b := s.open(t)
		m := message("signed", "", 0)
		m.Attributes = nil
		attribute(brokers.FieldSignature, strings.Repeat("s", 700))(&m)
		attribute("other", strings.Repeat("x", 1000))(&m)
		m.Payload = make([]byte, 9_999_000)
		result := b.Publish(t.Context(), []brokers.Message{m})[0]
		require.NoError(t, result.Err)
		assert.Contains(t, result.Omitted, "other")
		assert.NotContains(t, result.Omitted, brokers.FieldSignature)

		m.Payload = make([]byte, 9_999_500)
		result = b.Publish(t.Context(), []brokers.Message{m})[0]
		require.ErrorContains(t, result.Err, "Pub/Sub takes 10000000")
	})
}
