package redisstreams_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// refusing is a server that answers every command, those that greet it included, with one error. A
// real server has no switch for most of these errors; those that can be brought about are in
// errors_real_test.go.
type refusing struct {
	addr string
	said atomic.Value // of a string; empty: commands succeed
}

func startRefusing(t *testing.T) *refusing {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &refusing{addr: listener.Addr().String()}
	s.said.Store("")
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() { // after the broker's, which closes the connections
		require.NoError(t, listener.Close())
		connections.Wait()
	})
	return s
}

// serve answers each command, an array of texts that are told with their lengths.
func (s *refusing) serve(c net.Conn) {
	defer c.Close()
	for in := textproto.NewReader(bufio.NewReader(c)); ; {
		var name string
		for parts := count(in, '*'); parts > 0; parts-- {
			text := make([]byte, count(in, '$')+len("\r\n"))
			if _, err := io.ReadFull(in.R, text); err != nil {
				return
			}
			if name == "" {
				name = string(bytes.TrimSpace(text))
			}
		}
		answer := "+PONG"
		switch said := s.said.Load().(string); {
		case name == "":
			return
		case said != "":
			answer = "-" + said
		case name == "hello":
			answer = "-ERR unknown command" // as Redis 5 has it
		}
		if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
			return
		}
	}
}

// count reads a number behind its mark; 0 at the end of a connection.
func count(in *textproto.Reader, mark byte) (n int) {
	line, _ := in.ReadLine()
	n, _ = strconv.Atoi(strings.TrimPrefix(line, string(mark)))
	return n
}

// What the server says about a whole call.
func TestServerErrors(t *testing.T) {
	server := startRefusing(t)
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
		"ERR something nobody has heard of":                                   "retryable",
		"OOMPH is not out of memory":                                          "retryable",
		"@user_script: 25: -OOM command not allowed when used memory":         "unavailable broker", // Redis 6, inside a script
		"@user_script:25: -NOPERM The user executing the script can't run it": "unavailable destination",
	} {
		t.Run(said, func(t *testing.T) {
			b := open(t, "redis://"+server.addr)
			require.NoError(t, b.Ping(t.Context()))
			server.said.Store(said)
			defer server.said.Store("")
			msgs := append(many("s", 120, 6), many("u", 120, 6)...)
			for i := range msgs[120:] {
				msgs[120+i].OrderingKey += "-u"
			}
			results := b.Publish(t.Context(), msgs)
			class, scope := brokers.Classify(results[0].Err)
			assert.Equal(t, want, strings.TrimSpace(string(class)+" "+string(scope)), "%v", results[0].Err)
			require.ErrorContains(t, results[0].Err, `redisstreams: publish to "s": `)

			// What the outage leaves is not tried: both streams were tried once, side by side.
			if class == brokers.ClassUnavailable {
				assert.Equal(t, map[string]int{want: 200, "not_sent": 40}, verdicts(results))
			} else {
				assert.Equal(t, map[string]int{want: 12, "not_sent": 228}, verdicts(results), "each key once")
			}
		})
	}
}

// An outage of one destination leaves the others alone.
func TestWrongType(t *testing.T) {
	b, prefix := shared(t)
	require.NoError(t, b.Client().Set(t.Context(), prefix+"wrong", "a string", 0).Err())
	msgs := append(many(prefix+"wrong", 250, 250), many(prefix+"right", 250, 1)...)
	for i := range msgs[250:] {
		msgs[250+i].OrderingKey = "right"
	}
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"unavailable destination": 100, "not_sent": 150}, verdicts(results[:250]))
	assert.Equal(t, map[string]int{"": 250}, verdicts(results[250:]))
	require.ErrorContains(t, results[0].Err, "something else than a stream")
}

func TestURLsAreNotQuoted(t *testing.T) {
	for _, url := range []string{
		"", "redis", "http://user:s3cret@host", "redis://user:s3cret@host:port/0", "redis://user:s3cret#@host:6379/0",
		"redis://user:s3cret/x@host:6379/0", "redis://user:s3cret%@host", "redis://user:s3cret@host/s3cret", "redis://h?s3cret=1",
	} {
		_, err := redisstreams.Open(redisstreams.Settings{URL: adapter.Secret(url)})
		require.Error(t, err, url)
		require.ErrorContains(t, err, "redisstreams: open: ")
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestOpenSettings(t *testing.T) {
	b := open(t, "rediss://user:s3cret@host:6390/3?read_timeout=7s&max_retries=9")
	settings := redisstreams.ClientOptions(b)
	assert.Equal(t, "host:6390", settings.Addr)
	assert.Equal(t, 3, settings.DB)
	assert.NotNil(t, settings.TLSConfig)
	assert.Zero(t, settings.MaxRetries, "off, whatever the URL says")
	assert.Equal(t, "7s", settings.ReadTimeout.String())
	assert.Equal(t, "10s", settings.WriteTimeout.String())
	assert.True(t, settings.ContextTimeoutEnabled)
}

// A client of the caller's stays open.
func TestNewLeavesTheClientOpen(t *testing.T) {
	owner, prefix := shared(t)
	b := redisstreams.New(owner.Client(), redisstreams.Settings{})
	assert.Equal(t, map[string]int{"": 3}, verdicts(b.Publish(t.Context(), many(prefix+"s", 3, 1))))
	require.NoError(t, b.Close(t.Context()))
	require.ErrorIs(t, b.Publish(t.Context(), many(prefix+"s", 1, 1))[0].Err, brokers.ErrClosed)
	assert.Equal(t, map[string]int{"": 3}, verdicts(owner.Publish(t.Context(), many(prefix+"s", 3, 1))))
}
