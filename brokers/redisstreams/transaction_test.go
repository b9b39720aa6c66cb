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
	b.Client().AddHook(&sent)
	b.Client().AddHook(&refused) // closer to the server
	refused.ids.Store("id-3", struct{}{})

	results := b.Publish(t.Context(), many("s", 12, 3))
	assert.Equal(t, map[string]int{"": 9, "retryable": 1, "not_sent": 2}, verdicts(results))
	require.ErrorContains(t, results[3].Err, "wrong number of arguments")
	assert.Equal(t, []string{"id-0", "id-1", "id-2", "id-4", "id-5", "id-7", "id-8", "id-10", "id-11"}, ids(received(t, b.Client(), "s")))
	assert.Equal(t, []string{"multi", "xadd", "exec", "evalsha", "eval", "xrange"}, sent.list)

	refused.ids.Delete("id-3")
	sent.list = nil
	assert.Equal(t, map[string]int{"": 12}, verdicts(b.Publish(t.Context(), many("s", 12, 3))))
	assert.Equal(t, []string{"multi", "xadd", "exec"}, sent.list, "the next one is a transaction again")
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
	b.Client().AddHook(&sent)
	publish := func(want ...string) {
		t.Helper()
		sent.list = nil
		assert.Equal(t, map[string]int{"": 30}, verdicts(b.Publish(t.Context(), many("s", 30, 3))))
		assert.Equal(t, want, sent.list)
	}
	publish("evalsha", "multi", "exec", "eval", "multi", "exec") // the first call and the second one
	publish("evalsha")
	s.do(t, "ACL", "SETUSER", "narrow", "+multi", "+exec")
	publish("evalsha", "multi", "exec") // the fourth one
	publish("multi", "xadd", "exec")
	s.do(t, "ACL", "SETUSER", "narrow", "-multi", "-exec")
	publish("multi", "xadd", "exec") // executed one by one
	publish("evalsha")
	assert.Equal(t, 6*30, s.length(t, "s"))
}

// names lists the commands that a client sends, each once in a row, without those that greet.
type names struct{ list []string }

func (n *names) add(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		name := cmd.Name()
		if name != "hello" && name != "client" && name != "auth" && (len(n.list) == 0 || n.list[len(n.list)-1] != name) {
			n.list = append(n.list, name)
		}
	}
}

func (n *names) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *names) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.add(cmd)
		return next(ctx, cmd)
	}
}

func (n *names) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.add(cmds...)
		return next(ctx, cmds)
	}
}

// odd takes the last argument off the XADD of a message, which the server notices as it executes it.
type odd string

func (odd) DialHook(next redis.DialHook) redis.DialHook { return next }

func (odd) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (o odd) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		cmds = slices.Clone(cmds)
		for i, cmd := range cmds {
			if args := cmd.Args(); cmd.Name() == "xadd" && *args[6].(*string) == string(o) { // xadd s * data payload id <id>
				cmds[i] = redis.NewStringCmd(ctx, args[:len(args)-1]...)
			}
		}
		return next(ctx, cmds)
	}
}
