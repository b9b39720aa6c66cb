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
	t.Parallel()
	s := newServer(t)
	s.createTopic(t, "orders")
	b := s.open(t)
	for name, c := range map[string]struct {
		within, beyond func(*brokers.Message)
		says           string
	}{
		"attributes": {attributes(98), attributes(99), "has 101 attributes with its flat fields, Pub/Sub takes 100"},
		"name": {
			attribute(strings.Repeat("n", 256), "x"), attribute(strings.Repeat("n", 257), "x"),
			`has 257 bytes, Pub/Sub takes 256`,
		},
		"value": {
			attribute("v", strings.Repeat("x", 1024)), attribute("v", strings.Repeat("x", 1025)),
			`the value of the attribute "v" has 1025 bytes, Pub/Sub takes 1024`,
		},
		"flat field": {
			func(m *brokers.Message) { m.CorrelationID = strings.Repeat("c", 1024) },
			func(m *brokers.Message) { m.CorrelationID = strings.Repeat("c", 1025) }, `"correlation_id" has 1025 bytes`,
		},
		"ordering key": {
			func(m *brokers.Message) { m.OrderingKey = strings.Repeat("k", 1024) },
			func(m *brokers.Message) { m.OrderingKey = strings.Repeat("k", 1025) }, "the ordering key has 1025 bytes",
		},
		"bytes": {
			func(m *brokers.Message) { m.Payload = make([]byte, 9_999_800) },
			func(m *brokers.Message) { m.Payload = make([]byte, 9_999_990) }, "(the payload 9999990), Pub/Sub takes 10000000",
		},
		"text":    {attribute("v", "naïve"), attribute("v", "\xff"), `the attribute "v" is not valid UTF-8`},
		"key":     {func(*brokers.Message) {}, func(m *brokers.Message) { m.OrderingKey = "\xff" }, "the ordering key \"\\xff\" is not valid UTF-8"},
		"no name": {func(*brokers.Message) {}, attribute("", "x"), "an attribute has no name"},
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
