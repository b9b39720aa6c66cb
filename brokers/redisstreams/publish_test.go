package redisstreams_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
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
	s := one(url, settings)
	s.Chunk = cmp.Or(s.Chunk, 100)
	b, err := redisstreams.Open(s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

// one is the settings that a test has given, if any, for the server at a URL.
func one(url string, given []redisstreams.Settings) (s redisstreams.Settings) {
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

// counter counts what a client sends.
type counter struct{ pipelines, commands, largest int }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands++
		c.largest = max(c.largest, len(cmd.Args()))
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name == "evalsha" || name == "xadd" || name == "multi" { // not those that set up a connection
			c.pipelines++
			c.commands += len(cmds)
		}
		return next(ctx, cmds)
	}
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
	b, prefix := shared(t)
	require.NoError(t, b.Publish(t.Context(), many(prefix+"s", 2, 1))[0].Err) // transactions are known from here on
	var sent counter
	b.Client().AddHook(&sent)

	assert.Equal(t, map[string]int{"": 500}, verdicts(b.Publish(t.Context(), many(prefix+"s", 500, 7))))
	assert.Equal(t, counter{pipelines: 5, commands: 5 * 102}, sent)

	whole := redisstreams.New(b.Client(), redisstreams.Settings{})
	require.NoError(t, whole.Publish(t.Context(), many(prefix+"s", 2, 1))[0].Err)
	sent = counter{}
	assert.Equal(t, map[string]int{"": 500}, verdicts(whole.Publish(t.Context(), many(prefix+"s", 500, 7))))
	assert.Equal(t, counter{pipelines: 1, commands: 502}, sent, "a batch of the processor is one chunk by default")
	assert.Equal(t, 500, whole.Capabilities().MaxBatch)

	sent = counter{}
	assert.Equal(t, map[string]int{"": 270}, verdicts(b.Publish(t.Context(), append(many(prefix+"u", 150, 7), many(prefix+"v", 120, 1)...))))
	assert.Equal(t, counter{pipelines: 4, commands: 270 + 4*2}, sent, "key-0 goes to both: a round for each")

	sent = counter{}
	unkeyed := append(many(prefix+"u", 150, 7), many(prefix+"v", 120, 1)...)
	for i := range unkeyed {
		unkeyed[i].OrderingKey = ""
	}
	assert.Equal(t, map[string]int{"": 270}, verdicts(b.Publish(t.Context(), unkeyed)))
	assert.Equal(t, counter{pipelines: 2, commands: 270}, sent, "two chunks of each, side by side, by plain commands")

	sent = counter{}
	assert.Equal(t, map[string]int{"": 100}, verdicts(b.Publish(t.Context(), append(many(prefix+"u", 60, 60), many(prefix+"u", 40, 50)...))))
	assert.Equal(t, counter{pipelines: 1, commands: 20 + 2 + 80}, sent, "a transaction for 40 keys, plain commands for the other 20")
}

// A server that was restarted or had its scripts flushed learns the script again.
func TestScriptIsUnknown(t *testing.T) {
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

func TestSettings(t *testing.T) {
	server := startServer(t)
	url := server.url()

	b := open(t, url, redisstreams.Settings{MaxLen: 10, Exact: true, Chunk: 7})
	var sent counter
	require.NoError(t, b.Ping(t.Context()))
	b.Client().AddHook(&sent)
	assert.Equal(t, map[string]int{"": 50}, verdicts(b.Publish(t.Context(), many("trimmed", 50, 3))))
	assert.Equal(t, 8+1+2, sent.commands, "eight chunks, the first one twice: the server did not know the script; and a question")
	assert.Equal(t, "id-40 id-41 id-42 id-43 id-44 id-45 id-46 id-47 id-48 id-49", strings.Join(ids(received(t, b.Client(), "trimmed")), " "))

	b = open(t, url, redisstreams.Settings{MaxLen: 10, BackfillBelow: new(int)})
	msgs := many("s", 4, 1)
	msgs[1].Priority, msgs[2].Priority = -1, 0
	assert.Equal(t, map[string]int{"": 4}, verdicts(b.Publish(t.Context(), msgs)))
	assert.Equal(t, []string{"id-0", "id-2", "id-3"}, ids(received(t, b.Client(), "s")))
	assert.Equal(t, []string{"id-1"}, ids(received(t, b.Client(), "s:backfill")))

	b = open(t, url, redisstreams.Settings{MaxMessageBytes: -1})
	assert.Equal(t, 512<<20, b.Capabilities().MaxMessageBytes)
}

// Large payloads end a chunk early.
func TestChunksAreBoundedInBytes(t *testing.T) {
	b, prefix := shared(t)
	require.NoError(t, b.Publish(t.Context(), many(prefix+"s", 2, 1))[0].Err) // transactions are known from here on
	var sent counter
	b.Client().AddHook(&sent)
	msgs := many(prefix+"s", 9, 1)
	for i := range msgs {
		msgs[i].Payload = make([]byte, 2<<20-100)
	}
	msgs[4].Payload = make([]byte, 6<<20) // larger than a chunk: goes alone
	assert.Equal(t, map[string]int{"": 9}, verdicts(b.Publish(t.Context(), msgs)))
	assert.Equal(t, counter{pipelines: 4, commands: 4*4 + 1, largest: sent.largest}, sent, "four chunks of two, and one")
}

var largeText = strings.Repeat("x", 64<<20)

// What can never be added is found before it is sent, and costs its neighbours nothing.
func TestPermanent(t *testing.T) {
	b, prefix := shared(t, redisstreams.Settings{MaxMessageBytes: 1000})
	for name, c := range map[string]struct {
		spoil func(*brokers.Message)
		says  string
	}{
		"too large":      {func(m *brokers.Message) { m.Payload = make([]byte, 1001) }, "1001 bytes, at most 1000"},
		"no destination": {func(m *brokers.Message) { m.Destination = "" }, "destination is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			stream := prefix + strings.ReplaceAll(name, " ", "-")
			msgs := many(stream, 9, 3)
			c.spoil(&msgs[3]) // of key-0, which has another at 6
			results := b.Publish(t.Context(), msgs)
			assert.Equal(t, map[string]int{"": 7, "permanent": 1, "not_sent": 1}, verdicts(results))
			require.ErrorContains(t, results[3].Err, c.says)
			require.ErrorContains(t, results[3].Err, `redisstreams: publish to "`)
			assert.ErrorIs(t, results[6].Err, brokers.ErrNotSent)
			assert.Len(t, received(t, b.Client(), stream), 7)
		})
	}
	wide := many(prefix+"wide", 2, 1)
	for range 17 { // the same text: the test needs no gigabyte
		wide[0].Attributes = append(wide[0].Attributes, brokers.Attribute{Name: "wide", Value: largeText})
	}
	results := b.Publish(t.Context(), wide)
	assert.Equal(t, map[string]int{"permanent": 1, "not_sent": 1}, verdicts(results))
	assert.Regexp(t, `the entry has 11408507\d\d bytes, its attributes included, and Redis stores at most 1073741824$`, results[0].Err.Error())

	msgs := many(prefix+"most", 1, 1)
	for i := range 1000 {
		msgs[0].Attributes = append(msgs[0].Attributes, brokers.Attribute{Name: fmt.Sprint("a", i), Value: "x"})
	}
	assert.Equal(t, map[string]int{"": 1}, verdicts(b.Publish(t.Context(), msgs)))
}

// What an entry cannot have beside its payload is left out of it, and named.
func TestOmitted(t *testing.T) {
	b, prefix := shared(t)
	for name, keys := range map[string]int{"an entry of its own": 3, "by the script": 1} {
		t.Run(name, func(t *testing.T) {
			msgs := many(prefix+name, 3, keys)
			msgs[0].Attributes = []brokers.Attribute{{Name: "a", Value: "x"}, {Name: "data", Value: "y"}, {Name: "z", Value: "z"}}
			for i := range 1002 {
				msgs[1].Attributes = append(msgs[1].Attributes, brokers.Attribute{Name: fmt.Sprint("a", i), Value: "x"})
			}
			results := b.Publish(t.Context(), msgs)
			assert.Equal(t, map[string]int{"": 3}, verdicts(results))
			assert.Equal(t, [][]string{{"data"}, {"a1000", "a1001"}, nil}, [][]string{results[0].Omitted, results[1].Omitted, results[2].Omitted})
			got := received(t, b.Client(), prefix+name)
			require.Len(t, got, 3)
			assert.Equal(t, msgs[0].Payload, got[0].Payload)
			assert.Equal(t, []brokers.Attribute{{Name: "a", Value: "x"}, {Name: "z", Value: "z"}}, got[0].Attributes)
			assert.Equal(t, msgs[1].Attributes[:1000], got[1].Attributes)
		})
	}
}

// What is not sent to a stream that is out holds its key in all streams.
func TestAKeyOfTwoStreamsOfWhichOneIsOut(t *testing.T) {
	t.Parallel()
	b, prefix := shared(t)
	out, works := prefix+"out", prefix+"works"
	client := redis.NewClient(redisOptions(t))
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Set(t.Context(), out, "no stream", 0).Err())
	msgs := many(out, 150, 150) // more than one chunk
	msgs = append(msgs, message(works, "key-149", 150), message(works, "another", 151))
	results := b.Publish(t.Context(), msgs)
	require.ErrorIs(t, results[149].Err, brokers.ErrNotSent, "its stream was out before")
	require.ErrorIs(t, results[150].Err, brokers.ErrNotSent, "it must not overtake the one before it")
	require.NoError(t, results[151].Err)
}

func redisOptions(t *testing.T) *redis.Options {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	return options
}
