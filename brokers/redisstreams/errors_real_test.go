package redisstreams_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// What real servers say when they do not take messages, and what it means. The package's
// documentation has the same table.
func TestErrorsOfRealServers(t *testing.T) {
	t.Parallel()
	const scopeBroker, scopeDestination = "unavailable broker", "unavailable destination"
	const second = "{s}2" // of the same slot as "s"
	for said, c := range map[string]struct {
		start func(t *testing.T) (url string) // a server in this state
		want  string
		helps string
	}{
		"OOM": {func(t *testing.T) string {
			return startServer(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction").url()
		}, scopeBroker, "raise maxmemory"},
		"READONLY": {func(t *testing.T) string {
			return startReplica(t, startServer(t)).url()
		}, scopeBroker, "connect to the primary"},
		"LOADING": {loading, scopeBroker, "starting"},
		"CLUSTERDOWN": {func(t *testing.T) string {
			return startServer(t, "--cluster-enabled", "yes").url()
		}, scopeBroker, "CLUSTER INFO"},
		"MISCONF": {cannotSave, scopeBroker, "see its log"},
		"NOREPLICAS": {func(t *testing.T) string {
			return startServer(t, "--min-replicas-to-write", "1").url()
		}, scopeBroker, "min-replicas-to-write"},
		"BUSY": {busy, scopeBroker, "SCRIPT KILL"},
		"NOAUTH|ERR Protocol error: unauthenticated|EOF|reset|broken pipe": {func(t *testing.T) string {
			return startServer(t, "--requirepass", "s3cret").url()
		}, scopeBroker, "a user and a password"},
		"WRONGPASS": {func(t *testing.T) string {
			return "redis://:s3cret-but-wrong@" + startServer(t, "--requirepass", "s3cret").addr()
		}, scopeBroker, "check user and password"},
		"ERR max number of clients|EOF|reset|broken pipe": {tooManyClients, scopeBroker, "raise maxclients"},
		"ERR DB index": {func(t *testing.T) string {
			return "redis://" + startServer(t).addr() + "/99"
		}, scopeBroker, "number of the database"},
		"NOPERM": {func(t *testing.T) string { // the stream is another user's
			s := startServer(t)
			s.do(t, "ACL", "SETUSER", "narrow", "on", ">s3cret", "~other*", "+evalsha", "+eval", "+xadd", "+ping")
			return "redis://narrow:s3cret@" + s.addr()
		}, scopeDestination, "the user needs XADD"},
		"NOPERM this user has no permissions to run the": {func(t *testing.T) string { // or the command
			s := startServer(t)
			s.do(t, "ACL", "SETUSER", "reader", "on", ">s3cret", "~*", "+xrange", "+ping")
			return "redis://reader:s3cret@" + s.addr()
		}, scopeDestination, "the user needs XADD"},
		"WRONGTYPE": {func(t *testing.T) string {
			s := startServer(t)
			s.do(t, "SET", "s", "a string")
			s.do(t, "SET", second, "a string")
			return s.url()
		}, scopeDestination, "something else than a stream"},
		"MOVED": {func(t *testing.T) string {
			c := startCluster(t, 2)
			if c.holder(t, "s") == c.nodes[0] {
				return c.nodes[1].url()
			}
			return c.nodes[0].url()
		}, scopeDestination, "cluster client"},
		"i/o timeout": {func(t *testing.T) string {
			s := startServer(t)
			t.Cleanup(s.freeze(t))
			return s.url() + "?read_timeout=200ms"
		}, scopeBroker, ""},
		"connect: connection refused": {func(t *testing.T) string {
			s := startServer(t)
			s.kill(t)
			return s.url()
		}, scopeBroker, "check that the server runs"},
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			b := open(t, c.start(t))
			plain, keyed := many("s", 120, 120), many("s", 120, 6) // by plain commands, and by the script
			for n, msgs := range [][]brokers.Message{plain, keyed, append(many("s", 60, 60), many("s", 60, 3)...), keyed, plain} {
				if n >= 3 {
					redisstreams.KnowTransactions(b)
				}
				results := b.Publish(t.Context(), msgs)
				verdict, err := verdicts(results), results[0].Err
				assert.Equal(t, 120, verdict[c.want]+verdict["not_sent"], "%v: %v", verdict, err)
				assert.Positive(t, verdict[c.want], "%v", verdict)
				assert.GreaterOrEqual(t, verdict["not_sent"], 20, "what the first chunk ran into is not tried again")
				require.Error(t, err)
				assert.Regexp(t, said, err.Error())
				if !regexp.MustCompile("EOF|reset|broken pipe").MatchString(err.Error()) { // gone before the answer could be read
					require.ErrorContains(t, err, c.helps)
				}
				require.ErrorContains(t, err, `redisstreams: publish to "s": `)
				assert.NotContains(t, fmt.Sprint(err, results[119].Err), "s3cret")
			}
			// Side by side in one pipeline, errors come another way.
			results := b.Publish(t.Context(), []brokers.Message{message("s", "", 1), message(second, "", 2)})
			assert.Equal(t, map[string]int{c.want: 2}, verdicts(results), "%v", results[1].Err)
			t.Log(results[0].Err)
		})
	}
}

// A ping that the server refuses says what to do, too.
func TestPingsOfRealServers(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--requirepass", "s3cret")
	narrow := startServer(t)
	narrow.do(t, "ACL", "SETUSER", "narrow", "on", ">s3cret", "~*", "+evalsha", "+eval", "+xadd", "+ping")
	for url, want := range map[string]string{
		s.url():                                         "NOAUTH Authentication required.: the client needs a user and a password",
		"redis://:s3cret-but-wrong@" + s.addr():         "check user and password",
		"redis://:s3cret@" + s.addr() + "/99":           "check the number of the database",
		"redis://narrow:s3cret@" + narrow.addr() + "/1": "with a database other than 0 SELECT",
	} {
		err := open(t, url).Ping(t.Context())
		require.ErrorContains(t, err, "broker unavailable: redisstreams: ping: ")
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

// loading starts a server that is busy reading its data.
func loading(t *testing.T) string {
	s := startServer(t, "--appendonly", "no", "--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
	client := s.client()
	defer client.Close()
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 5000 {
			p.Set(t.Context(), fmt.Sprint("key-", i), strings.Repeat("x", 500), 0)
		}
		return nil
	})
	require.NoError(t, err)
	s.do(t, "SAVE")
	s.kill(t)
	s.start(t)
	return s.url()
}

// cannotSave starts a server that has just failed to save.
func cannotSave(t *testing.T) string {
	s := startServer(t, "--appendonly", "no", "--save", "3600 1")
	require.NoError(t, os.RemoveAll(s.dir))
	s.do(t, "BGSAVE")
	soon(t, "the save has failed", func() bool {
		return strings.Contains(s.ask(t, "INFO", "persistence"), "rdb_last_bgsave_status:err")
	})
	require.NoFileExists(t, filepath.Join(s.dir, "dump.rdb"))
	return s.url()
}

// busy starts a server whose time a script takes up.
func busy(t *testing.T) string {
	s := startServer(t, "--busy-reply-threshold", "1")
	client := s.client()
	hog := client.Conn() // go-redis would wait for it in Close otherwise
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = hog.Do(context.Background(), "EVAL", "while true do end", 0).Err()
	}()
	t.Cleanup(func() {
		<-done
		require.NoError(t, hog.Close())
		require.NoError(t, client.Close())
	})
	other := s.client()
	defer other.Close()
	soon(t, "the script runs", func() bool { return redis.HasErrorPrefix(other.Ping(context.Background()).Err(), "BUSY") })
	t.Cleanup(func() {
		killer := s.client()
		defer killer.Close()
		require.NoError(t, killer.ScriptKill(context.Background()).Err())
	})
	return s.url()
}

// tooManyClients starts a server that has as many clients as it takes.
func tooManyClients(t *testing.T) string {
	s := startServer(t)
	client := s.client()
	conn := client.Conn()
	require.NoError(t, conn.Ping(t.Context()).Err())
	require.NoError(t, conn.Do(t.Context(), "CONFIG", "SET", "maxclients", 1).Err())
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		require.NoError(t, client.Close())
	})
	return s.url()
}

// The server runs out of memory in the middle of a bulk: what went before is confirmed, the rest
// keeps its attempts, and no key has a gap.
func TestOutOfMemoryMeanwhile(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]int{"plain": 1000, "script": 7, "mixed": 130, "transactions": 7, "mixed, transactions": 130} {
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

// One destination is out in the middle of a pipeline: the others are not.
func TestWrongTypeAmongOthers(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do(t, "SET", "wrong", "a string")
	b := open(t, s.url())
	var msgs []brokers.Message
	for i := range 600 {
		stream := []string{"right", "wrong", "fine"}[i%3]
		msgs = append(msgs, message(stream, fmt.Sprint(stream, i%17), i))
	}
	results := b.Publish(t.Context(), msgs)
	verdict := verdicts(results)
	assert.Equal(t, 400, verdict[""], "%v", verdict)
	assert.Equal(t, 17, verdict["unavailable destination"], "%v: each key once", verdict)
	assert.Equal(t, 183, verdict["not_sent"], "%v", verdict)
	assert.Equal(t, 200, s.length(t, "right"))
	assert.Equal(t, 200, s.length(t, "fine"))
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
	s.do(t, "ACL", "SETUSER", "narrow", "+time")
	assert.Equal(t, map[string]int{"": 5}, verdicts(aged.Publish(t.Context(), many("allowed", 5, 5))))

	// The right is granted while the broker runs.
	s.do(t, "ACL", "SETUSER", "narrow", "~other")
	assert.Equal(t, map[string]int{"": 30}, verdicts(b.Publish(t.Context(), many("other", 30, 20))))
}
