package redisstreams_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/outbox"
)

// protocol is a log that can be read while it is written.
type protocol struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *protocol) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(line)
}

func (p *protocol) lines(parts ...string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
lines:
	for line := range strings.Lines(p.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// relayed is a relay to a Redis server.
type relayed struct {
	*relaytest.Relay

	log protocol
}

func newRelayed(t *testing.T, target brokers.Broker) *relayed {
	t.Helper()
	r := &relayed{}
	r.Relay = relaytest.Start(t, target, outbox.Policy{
		PollMin: time.Millisecond, PollMax: 20 * time.Millisecond, Breaker: outbox.Breaker{MinDelay: 20 * time.Millisecond, MaxDelay: 100 * time.Millisecond},
	}, slog.New(slog.NewTextHandler(&r.log, nil)))
	return r
}

func (r *relayed) insert(stream string, n int) {
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = outbox.Row{Stream: stream, OrderingKey: fmt.Sprint(stream, i%5)}
	}
	r.Insert(rows...)
}

// A relay meets a server that takes nothing, and goes on when it is well again: the log names the
// cause once and says when it is over, the rows show it, no attempt is spent, and everything
// arrives once.
func TestFault30RelayOutlivesAServerThatTakesNothing(t *testing.T) {
	t.Parallel()
	for said, state := range map[string]func(t *testing.T) (s *server, heal []any){
		"OOM": func(t *testing.T) (*server, []any) {
			return startServer(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction"), []any{"CONFIG", "SET", "maxmemory", 0}
		},
		"READONLY": func(t *testing.T) (*server, []any) {
			return startReplica(t, startServer(t)), []any{"REPLICAOF", "NO", "ONE"}
		},
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			s, heal := state(t)
			r := newRelayed(t, open(t, s.url()))
			r.insert("s", 100)
			soon(t, "the log says why", func() bool { return r.log.lines("level=WARN", `msg="broker unavailable`, "broker=b", said) == 1 })
			soon(t, "the rows say why", func() bool { return r.Count("last_error LIKE '%"+said+"%'") > 0 })
			assert.Equal(t, 100, r.Count("finished_at IS NULL AND attempts = 0"))
			s.do(t, heal...)
			soon(t, "everything is delivered", func() bool { return r.Count("status = 'published' AND attempts = 1") == 100 })
			soon(t, "the log says that it is over", func() bool { return r.log.lines("level=INFO", `msg="broker available again"`) == 1 })
			assert.Equal(t, 1, r.log.lines("level=WARN"), "once for the whole outage")
			assert.Equal(t, 100, s.length(t, "s"))
		})
	}
}

// The user of a relay may write to one stream of two: that one flows, the other waits with its
// attempts, the log names it once, and it resumes by itself when the right is granted.
func TestFault14RightOfOneStreamIsMissing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do(t, "ACL", "SETUSER", "narrow", "on", ">secret", "~allowed", "+evalsha", "+eval", "+xadd", "+ping")
	r := newRelayed(t, open(t, "redis://narrow:secret@"+s.addr()))
	r.insert("other", 50)
	r.insert("allowed", 50)
	soon(t, "the other stream flows", func() bool { return r.Count("status = 'published'") == 50 })
	soon(t, "the log names it", func() bool {
		return r.log.lines("level=WARN", `msg="destination unavailable`, "destination=other", "NOPERM") == 1
	})
	r.insert("allowed", 50)
	soon(t, "it still does", func() bool { return r.Count("status = 'published'") == 100 })
	assert.Equal(t, 50, r.Count("stream = 'other' AND finished_at IS NULL AND attempts = 0"))
	s.do(t, "ACL", "SETUSER", "narrow", "~other")
	soon(t, "everything is delivered", func() bool { return r.Count("status = 'published' AND attempts = 1") == 150 })
	soon(t, "the log says that it is over", func() bool {
		return r.log.lines("level=INFO", `msg="destination available again"`, "destination=other") == 1
	})
	assert.Equal(t, 1, r.log.lines("level=WARN"))
}

// One node of a cluster takes nothing: what the others hold flows, and nothing is charged or abandoned
// for as long as it lasts.
func TestOneNodeOfAClusterTakesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	client := c.client(t)
	sick := c.nodes[1]
	streams := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		streams[i] = c.streamOn(t, node, "s")
	}
	other := c.streamOn(t, sick, "t")
	for said, change := range map[string][2][]any{
		"OOM":        {{"CONFIG", "SET", "maxmemory", 1}, {"CONFIG", "SET", "maxmemory", 0}},
		"NOREPLICAS": {{"CONFIG", "SET", "min-replicas-to-write", 1}, {"CONFIG", "SET", "min-replicas-to-write", 0}},
	} {
		sick.do(t, change[0]...)
		r := newRelayed(t, redisstreams.New(client, redisstreams.Settings{Chunk: 100}))
		for _, stream := range slices.Concat(streams, []string{other}) {
			r.insert(stream, 50)
		}
		healthy := "stream IN ('" + streams[0] + "', '" + streams[2] + "')"
		for round := range 8 { // each of which would charge the heads of the sick node's keys
			soon(t, "what the others hold flows", func() bool { return r.Count(healthy+" AND status = 'published'") == 100+40*round })
			soon(t, "the log names it", func() bool { return r.log.lines("level=WARN", said) > 0 })
			r.insert(streams[0], 20)
			r.insert(streams[2], 20)
		}
		assert.Equal(t, 100, r.Count("NOT "+healthy+" AND finished_at IS NULL AND attempts = 0"), "%s: nothing is charged:\n%s", said, r.log.text.String())
		sick.do(t, change[1]...)
		soon(t, "everything is delivered", func() bool { return r.Count("finished_at IS NULL") == 0 })
		assert.Equal(t, 0, r.Count("attempts > 1 OR status = 'abandoned'"), said)
		r.Stop()
		for _, node := range c.nodes {
			node.do(t, "FLUSHALL")
		}
	}
}
