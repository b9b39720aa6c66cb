package redisstreams_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A reply is an error of the server.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// always answers each command with an error.
func always(err error) hook {
	return func(_ context.Context, cmds []redis.Cmder, _ func([]redis.Cmder) error) error {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// The replies that Redis has for a whole call. TestErrorsOfRealServers brings about those that a real
// server can be made to say.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"LOADING Redis is loading the dataset in memory":                      "unavailable broker",
		"OOM command not allowed when used memory > 'maxmemory'.":             "unavailable broker",
		"READONLY You can't write against a read only replica.":               "unavailable broker",
		"MASTERDOWN Link with MASTER is down":                                 "unavailable broker",
		"CLUSTERDOWN The cluster is down":                                     "unavailable broker",
		"TRYAGAIN Multiple keys request during rehashing of slot":             "unavailable destination",
		"MISCONF Errors writing to the AOF file: No space left on device":     "unavailable broker",
		"NOREPLICAS Not enough good replicas to write.":                       "unavailable broker",
		"BUSY Redis is busy running a script.":                                "unavailable broker",
		"NOAUTH Authentication required.":                                     "unavailable broker",
		"WRONGPASS invalid username-password pair or user is disabled.":       "unavailable broker",
		"ERR invalid password":                                                "unavailable broker",
		"ERR max number of clients reached":                                   "unavailable broker",
		"ERR DB index is out of range":                                        "unavailable broker",
		"ERR WAIT cannot be used with replica instances.":                     "unavailable broker",
		"NOPERM this user has no permissions to run the 'evalsha' command":    "unavailable destination",
		"WRONGTYPE Operation against a key holding the wrong kind of value":   "unavailable destination",
		"MOVED 3999 127.0.0.1:6381":                                           "unavailable destination",
		"ASK 3999 127.0.0.1:6381":                                             "unavailable destination",
		"ERR unknown command 'auth', with args beginning with: 'u' 'p' ":      "unavailable broker",
		"ERR an error of a later version":                                     "retryable",
		"OOMPH is not out of memory":                                          "retryable",
		"@user_script: 25: -OOM command not allowed when used memory":         "unavailable broker", // Redis 6, inside a script
		"@user_script:25: -NOPERM The user executing the script can't run it": "unavailable destination",
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			b := open(t, "redis://127.0.0.1:1")
			b.Client().AddHook(always(reply(said)))
			msgs := append(many("s", 120, 6), many("u", 120, 6)...)
			for i := range msgs[120:] {
				msgs[120+i].OrderingKey += "-u"
			}
			results := b.Publish(t.Context(), msgs)
			require.ErrorContains(t, results[0].Err, `redisstreams: publish to "s": `)
			// Of two streams, side by side, each meets an outage once, and a refusal is each key's.
			counts := map[string]int{want: 200, "not_sent": 40}
			if want == "retryable" {
				counts = map[string]int{want: 12, "not_sent": 228}
			}
			assert.Equal(t, counts, verdicts(results), "%v", results[0].Err)
		})
	}
}

// A deadline that passes during a call is an outage. After the caller has cancelled, nothing is known.
func TestContextEndsDuringACall(t *testing.T) {
	t.Parallel()
	for want, of := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"unavailable broker": func(ctx context.Context) (context.Context, context.CancelFunc) { return testenv.Deadline(ctx) },
		"retryable":          context.WithCancel,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			b := open(t, "redis://127.0.0.1:1")
			ctx, end := of(t.Context())
			defer end()
			b.Client().AddHook(hook(func(_ context.Context, cmds []redis.Cmder, send func([]redis.Cmder) error) error {
				end()
				<-ctx.Done()
				return always(errors.New("i/o timeout"))(ctx, cmds, send)
			}))
			assert.Equal(t, map[string]int{want: 100, "not_sent": 50}, verdicts(b.Publish(ctx, many("s", 150, 3))))
		})
	}
}

func TestURLsAreNotQuoted(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "redis", "http://user:s3cret@host", "redis://user:s3cret@host:port/0", "redis://user:s3cret#@host:6379/0",
		"redis://user:s3cret/x@host:6379/0", "redis://user:s3cret%@host", "redis://user:s3cret@host/s3cret", "redis://h?s3cret=1",
	} {
		_, err := redisstreams.Open(redisstreams.Settings{URL: adapter.Secret(url)})
		require.ErrorContains(t, err, "redisstreams: open: ", url)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestNewLeavesTheClientOpen(t *testing.T) {
	t.Parallel()
	owner, prefix := shared(t)
	b := redisstreams.New(owner.Client(), redisstreams.Settings{})
	assert.Equal(t, map[string]int{"": 3}, verdicts(b.Publish(t.Context(), many(prefix+"s", 3, 1))))
	require.NoError(t, b.Close(t.Context()))
	require.ErrorIs(t, b.Publish(t.Context(), many(prefix+"s", 1, 1))[0].Err, brokers.ErrClosed)
	assert.Equal(t, map[string]int{"": 3}, verdicts(owner.Publish(t.Context(), many(prefix+"s", 3, 1))))
}

// The server runs out of memory in the middle of a bulk: what went before is confirmed, the rest
// keeps its attempts, and no key has a gap.
func TestOutOfMemoryMeanwhile(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]int{"plain": 1000, "script": 7, "mixed, transactions": 130} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction", "--appendonly", "no")
			b := open(t, s.url())
			if strings.Contains(name, "transactions") {
				redisstreams.KnowTransactions(b)
			}
			msgs := many("s", 1000, keys)
			for i := range msgs {
				msgs[i].Payload = make([]byte, 20_000)
			}
			results := b.Publish(t.Context(), msgs)
			verdict := verdicts(results)
			assert.Positive(t, verdict[""], "%v", verdict)
			assert.Positive(t, verdict["unavailable broker"], "%v", verdict)
			assert.Equal(t, 1000, verdict[""]+verdict["unavailable broker"]+verdict["not_sent"], "%v", verdict)

			s.do(t, "CONFIG", "SET", "maxmemory", 0)
			visible, gap := map[string]bool{}, map[string]bool{}
			for _, id := range ids(received(t, b.Client(), "s")) {
				visible[id] = true
			}
			for i, m := range msgs {
				require.Equal(t, results[i].Err == nil, visible[m.ID], "message %d: %v", i, results[i].Err)
				require.False(t, gap[m.OrderingKey] && visible[m.ID], "message %d is visible, and one before it is not", i)
				gap[m.OrderingKey] = gap[m.OrderingKey] || !visible[m.ID]
			}
		})
	}
}

// A payload that the server refuses to read costs a connection, mostly before the refusal can be
// read: no message is blamed.
func TestServerTakesLessThanTheBrokerKnows(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--proto-max-bulk-len", "1mb")
	b := open(t, s.url())
	msgs := many("s", 30, 5)
	msgs[12].Payload = make([]byte, 1<<20+1)
	for range 2 { // by the script, and by a transaction
		for i, result := range b.Publish(t.Context(), msgs) {
			class, _ := brokers.Classify(result.Err)
			if i != 12 {
				require.Contains(t, []brokers.Class{"", brokers.ClassUnavailable, brokers.ClassNotSent}, class, "%d: %v", i, result.Err)
			}
		}
		redisstreams.KnowTransactions(b)
	}
	// With the limit known, the broker says so at once.
	b = open(t, s.url(), redisstreams.Settings{MaxMessageBytes: 1 << 20})
	assert.Equal(t, map[string]int{"": 26, "permanent": 1, "not_sent": 3}, verdicts(b.Publish(t.Context(), msgs)))
}

// A user of the ACL who may write to one stream alone, with the least rights that are documented.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do(t, "ACL", "SETUSER", "narrow", "on", ">secret", "~allowed", "+evalsha", "+eval", "+xadd", "+ping")
	b := open(t, "redis://narrow:secret@"+s.addr())
	require.NoError(t, b.Ping(t.Context()))
	for range 2 {
		results := b.Publish(t.Context(), append(many("allowed", 30, 20), many("other", 30, 20)...))
		assert.Equal(t, map[string]int{"": 30}, verdicts(results[:30]))
		assert.NotContains(t, verdicts(results[30:]), "")
		assert.NotContains(t, verdicts(results[30:]), "unavailable broker")
	}
	assert.Equal(t, 60, s.length(t, "allowed"))

	// An age takes one right more.
	aged := open(t, "redis://narrow:secret@"+s.addr(), redisstreams.Settings{MaxAge: time.Hour})
	results := aged.Publish(t.Context(), many("allowed", 5, 5))
	assert.Equal(t, map[string]int{"unavailable destination": 5}, verdicts(results))
	require.ErrorContains(t, results[0].Err, "max_age TIME")
	s.do(t, "ACL", "SETUSER", "narrow", "+time", "~other")
	assert.Equal(t, map[string]int{"": 5}, verdicts(aged.Publish(t.Context(), many("allowed", 5, 5))))
	assert.Equal(t, map[string]int{"": 30}, verdicts(b.Publish(t.Context(), many("other", 30, 20))), "the right came while the broker ran")
}

// What the client logs of a refused command shows no password.
func TestClientLog(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	redisstreams.ClientLog(func() *slog.Logger { return log }).Printf(t.Context(), "auth: %s", "ERR unknown command 'AUTH', with args beginning with: 'u' 'hunter2'")
	assert.Contains(t, said.String(), "auth: ERR unknown command 'AUTH'")
	assert.NotContains(t, said.String(), "hunter2")
	redisstreams.ClientLog(func() *slog.Logger { return nil }).Printf(t.Context(), "dropped")
	assert.NotContains(t, said.String(), "dropped")
}
