package redisstreams_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// open returns a broker with small chunks, so that a few hundred messages are several.
func open(t testing.TB, url string, settings ...redisstreams.Settings) *redisstreams.Broker {
	t.Helper()
	s := at(url, settings...)
	s.Chunk = cmp.Or(s.Chunk, 100)
	b, err := redisstreams.Open(s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

// at are the settings that a test has given, if any, for the server at a URL.
func at(url string, given ...redisstreams.Settings) (s redisstreams.Settings) {
	if len(given) > 0 {
		s = given[0]
	}
	s.URL = adapter.Secret(url)
	return s
}

// shared returns a broker on the shared server, and the prefix of the streams that it may use.
func shared(t *testing.T, settings ...redisstreams.Settings) (b *redisstreams.Broker, prefix string) {
	t.Helper()
	return open(t, testenv.Redis(t), settings...), testenv.RedisPrefix(t)
}

func message(stream, key string, n int) brokers.Message {
	return brokers.Message{
		ID: fmt.Sprintf("id-%d", n), Destination: stream, Type: "T.v1", OrderingKey: key, ContentType: "application/json",
		Payload: fmt.Appendf(nil, "%d", n),
	}
}

func many(stream string, n, keys int) []brokers.Message {
	msgs := make([]brokers.Message, n)
	for i := range msgs {
		msgs[i] = message(stream, fmt.Sprint("key-", i%keys), i)
	}
	return msgs
}

func ids(messages []brokers.Message) (ids []string) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// verdicts counts results by class and scope.
func verdicts(results []brokers.Result) map[string]int {
	count := map[string]int{}
	for _, result := range results {
		class, scope := brokers.Classify(result.Err)
		count[strings.TrimSpace(string(class)+" "+string(scope))]++
	}
	return count
}

// The entry as consumers in other languages see it, field by field.
func TestEntry(t *testing.T) {
	b, prefix := shared(t)
	m := message(prefix+"ordering::order", "ordering::order-1", 1)
	m.CorrelationID = "c-1"
	m.Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-1"}, {Name: "tenant_id", Value: "acme"}}
	results := b.Publish(t.Context(), []brokers.Message{m})
	require.NoError(t, results[0].Err)

	// XRange of go-redis would lose the order of the fields.
	entries, err := b.Client().Do(t.Context(), "XRANGE", m.Destination, "-", "+").Slice()
	require.NoError(t, err)
	require.Len(t, entries, 1)
	entry := entries[0].([]any)
	assert.Equal(t, entry[0], results[0].BrokerMessageID)
	assert.Equal(t, []any{
		"data", "1", "id", "id-1", "type", "T.v1", "ordering_key", "ordering::order-1", "correlation_id", "c-1", "traceparent", "00-1", "tenant_id", "acme",
	}, entry[1])
}

// One round trip per chunk, for all destinations together. A transaction adds what has more than one
// message of its key in the chunk.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	b, prefix := shared(t)
	redisstreams.KnowTransactions(b)
	whole := redisstreams.KnowTransactions(redisstreams.New(b.Client(), redisstreams.Settings{}))
	var sent counter
	b.Client().AddHook(sent.hook())
	unkeyed := append(many(prefix+"u", 150, 7), many(prefix+"v", 120, 1)...)
	for i := range unkeyed {
		unkeyed[i].OrderingKey = ""
	}
	large := many(prefix+"large", 9, 1)
	for i := range large {
		large[i].Payload = make([]byte, 2<<20-100)
	}
	large[4].Payload = make([]byte, 6<<20)
	for _, c := range []struct {
		why    string
		broker *redisstreams.Broker
		msgs   []brokers.Message
		want   counter
	}{
		{"chunks of 100", b, many(prefix+"s", 500, 7), counter{pipelines: 5, commands: 5 * 102}},
		{"a batch of the processor is one chunk by default", whole, many(prefix+"s", 500, 7), counter{pipelines: 1, commands: 502}},
		{"key-0 goes to both: a round for each", b, append(many(prefix+"u", 150, 7), many(prefix+"v", 120, 1)...), counter{pipelines: 4, commands: 270 + 4*2}},
		{"two chunks of each, side by side, by plain commands", b, unkeyed, counter{pipelines: 2, commands: 270}},
		{
			"a transaction for 40 keys, plain commands for the other 20", b, append(many(prefix+"u", 60, 60), many(prefix+"u", 40, 50)...),
			counter{pipelines: 1, commands: 20 + 2 + 80},
		},
		{"chunks are bounded in bytes: four of two messages, and one alone", b, large, counter{pipelines: 4, commands: 4*4 + 1}},
	} {
		sent = counter{}
		assert.Equal(t, map[string]int{"": len(c.msgs)}, verdicts(c.broker.Publish(t.Context(), c.msgs)), c.why)
		assert.Equal(t, c.want, sent, c.why)
	}
	assert.Equal(t, 500, whole.Capabilities().MaxBatch)
}

// A server that was restarted or had its scripts flushed learns the script again.
func TestScriptIsUnknown(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	b := open(t, server.url())
	for range 2 {
		require.NoError(t, b.Client().ScriptFlush(t.Context()).Err())
		results := b.Publish(t.Context(), append(many("s", 3, 1), message("u", "x", 4), message("v", "y", 5)))
		assert.Equal(t, map[string]int{"": 5}, verdicts(results))
		for i, result := range results {
			assert.NotEmpty(t, result.BrokerMessageID, "message %d", i)
		}
	}
	assert.Len(t, received(t, b.Client(), "s"), 6)
}

func TestBackfill(t *testing.T) {
	t.Parallel()
	b, prefix := shared(t, redisstreams.Settings{BackfillBelow: new(int)})
	msgs := many(prefix+"s", 4, 1)
	msgs[1].Priority = -1
	assert.Equal(t, map[string]int{"": 4}, verdicts(b.Publish(t.Context(), msgs)))
	assert.Equal(t, []string{"id-0", "id-2", "id-3"}, ids(received(t, b.Client(), prefix+"s")))
	assert.Equal(t, []string{"id-1"}, ids(received(t, b.Client(), prefix+"s:backfill")))

	b, prefix = shared(t) // without it, all go to the stream
	assert.Equal(t, map[string]int{"": 1}, verdicts(b.Publish(t.Context(), []brokers.Message{{ID: "1", Destination: prefix + "s", Priority: -100}})))
	assert.Len(t, received(t, b.Client(), prefix+"s"), 1)
}

var largeText = strings.Repeat("x", 64<<20)

// A message that can never be added is found before it is sent, and costs its neighbours nothing.
func TestPermanent(t *testing.T) {
	t.Parallel()
	b, prefix := shared(t)
	for says, spoil := range map[string]func(*brokers.Message){
		"the destination is empty": func(m *brokers.Message) { m.Destination = "" },
		"the entry has 11408507[0-9]* bytes, its attributes included, and Redis stores at most 1073741824": func(m *brokers.Message) {
			for range 17 { // the same text: the test needs no gigabyte
				m.Attributes = append(m.Attributes, brokers.Attribute{Name: "wide", Value: largeText})
			}
		},
	} {
		msgs := many(prefix+"s", 9, 3)
		spoil(&msgs[3]) // of key-0, which has another at 6
		results := b.Publish(t.Context(), msgs)
		assert.Equal(t, map[string]int{"": 7, "permanent": 1, "not_sent": 1}, verdicts(results))
		assert.Regexp(t, says+"$", results[3].Err.Error())
		require.ErrorIs(t, results[6].Err, brokers.ErrNotSent)
	}
	assert.Equal(t, 512<<20, open(t, testenv.Redis(t), redisstreams.Settings{MaxMessageBytes: -1}).Capabilities().MaxMessageBytes)
}

// Attributes that an entry cannot have beside its payload are left out of it, and named.
func TestOmitted(t *testing.T) {
	t.Parallel()
	b, prefix := shared(t)
	for name, keys := range map[string]int{"an entry of its own": 3, "by the script": 1} {
		msgs := many(prefix+name, 3, keys)
		msgs[0].Attributes = []brokers.Attribute{{Name: "a", Value: "x"}, {Name: "data", Value: "y"}, {Name: "z", Value: "z"}}
		for i := range 1002 {
			msgs[1].Attributes = append(msgs[1].Attributes, brokers.Attribute{Name: fmt.Sprint("a", i), Value: "x"})
		}
		results := b.Publish(t.Context(), msgs)
		assert.Equal(t, map[string]int{"": 3}, verdicts(results), name)
		assert.Equal(t, [][]string{{"data"}, {"a1000", "a1001"}, nil}, [][]string{results[0].Omitted, results[1].Omitted, results[2].Omitted})
		got := received(t, b.Client(), prefix+name)
		require.Len(t, got, 3)
		assert.Equal(t, msgs[0].Payload, got[0].Payload)
		assert.Equal(t, []brokers.Attribute{{Name: "a", Value: "x"}, {Name: "z", Value: "z"}}, got[0].Attributes)
		assert.Equal(t, msgs[1].Attributes[:1000], got[1].Attributes)
	}
}
