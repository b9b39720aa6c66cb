package integration_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
	"github.com/gorm-fanout/fanout/outbox"
)

// neighbours are four brokers of one relay, on one Redis server: three of them behind a network of
// their own.
type neighbours struct {
	*bench

	names    []string // of all brokers
	networks map[string]*toxic.Proxy
	rows     int
}

func newNeighbours(p *place) *neighbours {
	t := p.T
	t.Helper()
	n := &neighbours{bench: newBench(p), names: []string{"default", "hung", "broken", "slow"}, networks: map[string]*toxic.Proxy{}}
	server, err := url.Parse(testenv.Redis(t))
	require.NoError(t, err)
	brokers := ""
	for _, name := range []string{"hung", "broken", "slow"} {
		proxy := toxic.Start(t, server.Host)
		n.networks[name] = proxy
		behind := *server
		behind.Host = proxy.Addr(t)
		brokers += fmt.Sprintf("  %s: {type: redis, url: %q, publish_timeout: 2s, breaker: {max_delay: 1s}}\n", name, &behind)
	}
	n.configure(fmt.Sprintf("outbox: {external_brokers: [hung, broken, slow], poll: {max: 200ms}}\nbrokers:\n  default: {type: redis, url: %q}\n", server) + brokers)
	return n
}

// insert adds messages for each broker.
func (n *neighbours) insert(count int) {
	n.Helper()
	for _, broker := range n.names {
		rows := make([]outbox.Row, count)
		for i := range rows {
			at := n.rows + i + 1
			rows[i] = numbered(broker, n.stream+":"+broker, at%31, at)
		}
		n.write(rows...)
	}
	n.rows += count
}

func (n *neighbours) published(broker string) int {
	n.Helper()
	return n.count("status = 'published' AND target_broker = '" + broker + "'")
}

// ledger compares what a broker was given with what consumers see: everything, and of each key the
// first deliveries in order. It returns the number of second copies.
func (n *neighbours) ledger(broker string) (duplicates int) {
	n.Helper()
	entries, err := n.redis.XRange(n.Context(), n.stream+":"+broker, "-", "+").Result()
	require.NoError(n, err)
	last, seen := map[int]int{}, map[int]bool{}
	for _, entry := range entries {
		var payload struct{ Key, N int }
		data, _ := entry.Values["data"].(string)
		require.NoError(n, json.Unmarshal([]byte(data), &payload))
		if seen[payload.N] {
			duplicates++
			continue
		}
		seen[payload.N] = true
		require.Greater(n, payload.N, last[payload.Key], "order of key %d at broker %s", payload.Key, broker)
		last[payload.Key] = payload.N
	}
	assert.Len(n, seen, n.rows, broker)
	return duplicates
}

// A broker that hangs, one whose connections break and one that is slow delay no other: it delivers
// all that is there, and what comes while they are ill. They lose no message, order or attempt, and
// catch up by themselves.
func TestIsolation(t *testing.T) {
	t.Parallel()
	onServersInTurn(t, testIsolation)
}

func testIsolation(t *testing.T, p *place) {
	t.Helper()
	n := newNeighbours(p)
	require.Zero(t, n.run("migrate").code)
	n.networks["hung"].BlackHole(t)
	n.networks["broken"].Reset(t)
	n.networks["slow"].Bandwidth(t, 20) // kilobytes per second
	r := n.relay()
	for range 5 {
		n.insert(300)
		eventually(t, func() bool { return n.published("default") == n.rows })
		assert.Zero(t, n.published("hung"))
		assert.Zero(t, n.published("broken"))
	}
	assert.Less(t, n.published("slow"), n.rows, "slow enough to tell something")
	assert.Zero(t, n.count("attempts > 0 AND status <> 'published' OR status = 'abandoned'"), "an outage costs no attempt")
	assert.Zero(t, n.ledger("default"), "duplicates")

	for _, network := range n.networks {
		network.Heal(t)
	}
	eventually(t, func() bool { return n.count("finished_at IS NULL") == 0 })
	code, _ := r.stop()
	assert.Zero(t, code)
	assert.Zero(t, n.count("status <> 'published'"))
	for _, broker := range n.names {
		t.Logf("%s: %d messages, %d second copies", broker, n.rows, n.ledger(broker))
	}
}
