package redisstreams_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// What real servers say when they take no messages, and what it means.
func TestErrorsOfRealServers(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
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
		"READONLY": {func(t *testing.T) string { return startReplica(t, startServer(t)).url() }, scopeBroker, "connect to the primary"},
		"NOAUTH|ERR Protocol error: unauthenticated|EOF|reset|broken pipe": {func(t *testing.T) string {
			return startServer(t, "--requirepass", "s3cret").url()
		}, scopeBroker, "a user and a password"},
		"WRONGPASS": {func(t *testing.T) string {
			return "redis://:s3cret-but-wrong@" + startServer(t, "--requirepass", "s3cret").addr()
		}, scopeBroker, "check user and password"},
		"NOPERM": {func(t *testing.T) string { // the stream is another user's
			s := startServer(t)
			s.do(t, "ACL", "SETUSER", "narrow", "on", ">s3cret", "~other*", "+evalsha", "+eval", "+xadd", "+ping")
			return "redis://narrow:s3cret@" + s.addr()
		}, scopeDestination, "the user needs XADD"},
		"WRONGTYPE": {func(t *testing.T) string {
			s := startServer(t)
			s.do(t, "MSET", "s", "a string", second, "a string")
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
		})
	}
}

// A ping that the server refuses says what to do, too.
func TestPingsOfRealServers(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--requirepass", "s3cret")
	s.password = "s3cret"
	s.do(t, "ACL", "SETUSER", "narrow", "on", ">s3cret", "~*", "+evalsha", "+eval", "+xadd", "+ping")
	for url, want := range map[string]string{
		s.url():                                    "NOAUTH Authentication required.: the client needs a user and a password",
		"redis://:s3cret-but-wrong@" + s.addr():    "check user and password",
		"redis://:s3cret@" + s.addr() + "/99":      "check the number of the database",
		"redis://narrow:s3cret@" + s.addr() + "/1": "with a database other than 0 SELECT",
	} {
		err := open(t, url).Ping(t.Context())
		require.ErrorContains(t, err, "broker unavailable: redisstreams: ping: ")
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}
