package redisstreams_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// Errors as a real server makes them, inside the script and outside of it.
func TestErrorsOfARealServer(t *testing.T) {
	s := startServer(t, "--proto-max-bulk-len", "2mb")
	s.do(t, "ACL", "SETUSER", "narrow", "on", ">secret", "~allowed*", "+evalsha", "+eval", "+xadd", "+ping")
	s.do(t, "ACL", "SETUSER", "reader", "on", ">secret", "~*", "+xrange", "+ping", "+evalsha", "+eval")
	s.do(t, "SET", "wrong", "a string")
	as := func(user string) string { return "redis://" + user + "@" + s.addr() }

	for name, c := range map[string]struct {
		url           string
		before, after []any
		stream        string
		want          string
	}{
		"fine":             {want: ""},
		"out of memory":    {before: []any{"CONFIG", "SET", "maxmemory", "1"}, after: []any{"CONFIG", "SET", "maxmemory", "0"}, want: "unavailable broker"},
		"a replica":        {before: []any{"REPLICAOF", "127.0.0.1", "1"}, after: []any{"REPLICAOF", "NO", "ONE"}, want: "unavailable broker"},
		"too few replicas": {before: []any{"CONFIG", "SET", "min-replicas-to-write", "1"}, after: []any{"CONFIG", "SET", "min-replicas-to-write", "0"}, want: "unavailable broker"},
		"wrong password":   {url: as("narrow:wrong"), want: "unavailable broker"},
		"password needed":  {before: []any{"CONFIG", "SET", "requirepass", "x"}, want: "unavailable broker"},
		"wrong type":       {stream: "wrong", want: "unavailable destination"},
		"key not allowed":  {url: as("narrow:secret"), stream: "other", want: "unavailable destination"},
		"key allowed":      {url: as("narrow:secret"), stream: "allowed", want: ""},
		"XADD not allowed": {url: as("reader:secret"), want: "unavailable destination"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.before != nil {
				s.do(t, c.before...)
			}
			defer func() {
				switch {
				case c.after != nil:
					s.do(t, c.after...)
				case c.before != nil:
					admin := redis.NewClient(&redis.Options{Addr: s.addr(), Password: "x"})
					defer admin.Close()
					require.NoError(t, admin.ConfigSet(context.Background(), "requirepass", "").Err())
				}
			}()
			if c.url == "" {
				c.url = s.url()
			}
			if c.stream == "" {
				c.stream = "s-" + name
			}
			b := open(t, c.url)
			// Twice, and once for two destinations in one pipeline: errors reach it in other ways.
			for range 2 {
				results := b.Publish(t.Context(), many(c.stream, 120, 120))
				want := map[string]int{c.want: 100, "not_sent": 20}
				if c.want == "" {
					want = map[string]int{"": 120}
				}
				assert.Equal(t, want, verdicts(results), "%v", results[0].Err)
				assert.NotContains(t, fmt.Sprint(results[0].Err), "secret")
			}
			results := b.Publish(t.Context(), []brokers.Message{message(c.stream, "", 1), message("allowed-2", "", 2)})
			class, scope := brokers.Classify(results[0].Err)
			assert.Equal(t, c.want != "", class == brokers.ClassUnavailable, "%v", results[0].Err)
			if scope == brokers.ScopeBroker {
				assert.Error(t, results[1].Err)
			}
			t.Log(results[0].Err)
		})
	}
}

// A payload that the server refuses to read costs a connection, mostly before the refusal can be read: nobody is blamed.
func TestServerTakesLessThanTheBrokerKnows(t *testing.T) {
	s := startServer(t, "--proto-max-bulk-len", "1mb")
	b := open(t, s.url())
	msgs := many("s", 30, 5)
	msgs[12].Payload = make([]byte, 1<<20+1)
	for i, result := range b.Publish(t.Context(), msgs) {
		class, _ := brokers.Classify(result.Err)
		if i != 12 {
			require.Contains(t, []brokers.Class{"", brokers.ClassUnavailable, brokers.ClassNotSent}, class, "%d: %v", i, result.Err)
		}
	}
	// Told of the limit, the broker says so at once.
	b = open(t, s.url(), redisstreams.WithMaxMessageBytes(1<<20))
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"": 26, "permanent": 1, "not_sent": 3}, verdicts(results))
}

// A hung server ends a publish at its deadline, and order survives that what was sent arrives after all.
func TestHungServer(t *testing.T) {
	s := startServer(t)
	b := open(t, s.url())
	msgs := many("s", 300, 3)
	require.Equal(t, map[string]int{"": 300}, verdicts(b.Publish(t.Context(), msgs)))

	thaw := s.freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	assert.Equal(t, map[string]int{"unavailable broker": 100, "not_sent": 200}, verdicts(b.Publish(ctx, msgs)))
	assert.Less(t, time.Since(began), 3*time.Second)
	thaw()
	assert.Equal(t, map[string]int{"": 300}, verdicts(b.Publish(t.Context(), msgs)))
}

// A cluster of two nodes: streams live on both, and one node's outage is not the other's.
func TestCluster(t *testing.T) {
	first := startServer(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
	second := startServer(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
	first.do(t, "CLUSTER", "ADDSLOTSRANGE", 0, 8191)
	second.do(t, "CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
	second.do(t, "CONFIG", "SET", "cluster-node-timeout", 600_000) // an outage is not to be voted on
	first.do(t, "CONFIG", "SET", "cluster-node-timeout", 600_000)
	host, port, err := net.SplitHostPort(second.addr())
	require.NoError(t, err)
	first.do(t, "CLUSTER", "MEET", host, port)

	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{first.addr(), second.addr()}, ContextTimeoutEnabled: true, DialerRetries: 1, DialTimeout: time.Second,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.Eventually(t, func() bool {
		client.ReloadState(t.Context())
		for _, key := range []string{"a", "b"} { // slots 15495 and 3300
			if client.Set(t.Context(), key, "", time.Millisecond).Err() != nil {
				return false
			}
		}
		return true
	}, 20*time.Second, 20*time.Millisecond, "the nodes know each other")

	b := redisstreams.New(client)
	var msgs []brokers.Message
	for i := range 700 {
		key := fmt.Sprint("key-", i%35)
		msgs = append(msgs, message(fmt.Sprint("stream-", i%7), key, i))
	}
	results := b.Publish(t.Context(), msgs)
	require.Equal(t, map[string]int{"": 700}, verdicts(results), "%v", results[0].Err)
	for i := range 7 {
		assert.Len(t, received(t, client, fmt.Sprint("stream-", i)), 100)
	}

	second.kill(t)
	verdict := verdicts(b.Publish(t.Context(), msgs))
	assert.Positive(t, verdict[""], "the other node works: %v", verdict)
	assert.Positive(t, verdict["unavailable destination"], "%v", verdict)
	assert.Equal(t, 700, verdict[""]+verdict["unavailable destination"]+verdict["not_sent"], "%v", verdict)

	// A client for one node is told where the stream is, and says what to do about it.
	results = open(t, first.url()).Publish(t.Context(), []brokers.Message{message("a", "", 1)})
	assert.Equal(t, map[string]int{"unavailable destination": 1}, verdicts(results))
	assert.ErrorContains(t, results[0].Err, "cluster client")
}
