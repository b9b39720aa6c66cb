package redisstreams_test

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// What is refused as it is queued discards the transaction: nothing of it is in the stream, and the
// script finds out which keys it concerns.
func TestDiscardedTransaction(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := redisstreams.KnowTransactions(open(t, s.url()))
	var (
		sent    names
		refused refusal
	)
	b.Client().AddHook(sent.hook())
	b.Client().AddHook(refused.hook()) // closer to the server
	restore := refused.refuse("id-3")

	results := b.Publish(t.Context(), many("s", 12, 3))
	assert.Equal(t, map[string]int{"": 9, "retryable": 1, "not_sent": 2}, verdicts(results))
	require.ErrorContains(t, results[3].Err, "wrong number of arguments")
	assert.Equal(t, []string{"id-0", "id-1", "id-2", "id-4", "id-5", "id-7", "id-8", "id-10", "id-11"}, ids(received(t, b.Client(), "s")))
	assert.Equal(t, "multi xadd exec evalsha eval xrange", sent.take())

	restore()
	assert.Equal(t, map[string]int{"": 12}, verdicts(b.Publish(t.Context(), many("s", 12, 3))))
	assert.Equal(t, "multi xadd exec", sent.take(), "the next one is a transaction again")
}

// An error of one command within EXEC, for which no server that is known has a reason: what the
// stream holds is confirmed, and nothing else.
func TestErrorWithinATransaction(t *testing.T) {
	t.Parallel()
	b := redisstreams.KnowTransactions(open(t, startServer(t).url()))
	b.Client().AddHook(odd("id-3"))
	results := b.Publish(t.Context(), many("s", 9, 3))
	assert.Equal(t, map[string]int{"": 8, "retryable": 1}, verdicts(results))
	require.ErrorContains(t, results[3].Err, `redisstreams: publish to "s": ERR wrong number of arguments`)
	assert.Equal(t, []string{"id-0", "id-1", "id-2", "id-4", "id-5", "id-6", "id-7", "id-8"}, ids(received(t, b.Client(), "s")))
	for i, result := range results {
		assert.Equal(t, i != 3, result.BrokerMessageID != "", "message %d", i)
	}
}

// A user who may not use MULTI, or no longer, has the script.
func TestWithoutTransactions(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do(t, "ACL", "SETUSER", "narrow", "on", ">secret", "~s", "+evalsha", "+eval", "+xadd", "+ping")
	b := open(t, "redis://narrow:secret@"+s.addr())
	var sent names
	b.Client().AddHook(sent.hook())
	publish := func(want string) {
		t.Helper()
		assert.Equal(t, map[string]int{"": 30}, verdicts(b.Publish(t.Context(), many("s", 30, 3))))
		assert.Equal(t, want, sent.take())
	}
	publish("evalsha multi exec eval multi exec") // the first call and the second one
	publish("evalsha")
	s.do(t, "ACL", "SETUSER", "narrow", "+multi", "+exec")
	publish("evalsha multi exec") // the fourth one
	publish("multi xadd exec")
	s.do(t, "ACL", "SETUSER", "narrow", "-multi", "-exec")
	publish("multi xadd exec") // executed one by one
	publish("evalsha")
	assert.Equal(t, 6*30, s.length(t, "s"))
}

// odd takes the last argument off the XADD of a message, which the server notices as it executes it.
func odd(id string) hook {
	return func(ctx context.Context, cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		cmds = slices.Clone(cmds)
		for i, cmd := range cmds {
			if args := cmd.Args(); cmd.Name() == "xadd" && *args[6].(*string) == id { // xadd s * data payload id <id>
				cmds[i] = redis.NewStringCmd(ctx, args[:len(args)-1]...)
			}
		}
		return send(cmds)
	}
}
