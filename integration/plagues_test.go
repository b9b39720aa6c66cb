package integration_test

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

// Three kinds of poison at once: a message that its broker refuses permanently, one at which its
// client panics, and one that kills the process. Only these are abandoned, each with its reason. The
// others arrive and pay nothing.
func TestPoisonOfThreeKinds(t *testing.T) {
	t.Parallel()
	onServers(t, testPoisonOfThreeKinds)
}

func testPoisonOfThreeKinds(t *testing.T, p *place) {
	t.Helper()
	o := newOutbreak(p)
	const each = 150
	for shard, payload := range []string{"poison", "refused", "panic", ""} {
		o.insert(shard, each, 20*shard, payload)
	}
	o.expects = []string{`msg="message abandoned"`, `msg="broker implementation failed"`}
	// A panic is a message's fault only where others pass, and here the last ones would have passed
	// before its last attempt.
	later := 0
	o.meanwhile = func() {
		if o.count("finished_at IS NULL AND NOT "+o.has("panic")) == 0 {
			o.insert(3, 1, -1, "")
			later++
		}
	}
	crashes := o.survive()
	t.Logf("%d crashes, %d later messages", crashes, later)
	assert.LessOrEqual(t, crashes, 8+5, "the killer is bounded by its attempts")

	assert.Equal(t, 3, o.count("status = 'abandoned'"))
	for payload, reason := range map[string]string{
		"poison":  `attempts = 5 AND last_error LIKE '%"class":"crashed"%'`,
		"refused": `attempts = 1 AND last_error LIKE '%"class":"permanent"%nobody will ever take this%'`,
		"panic":   `attempts = 5 AND last_error LIKE '%a bug in the broker''s client%'`,
	} {
		assert.Equal(t, 1, o.count("status = 'abandoned' AND "+o.has(payload)+" AND "+reason), payload)
	}
	assert.Equal(t, 4*each-3+later, o.count("status = 'published' AND attempts = 1"), "nobody else has paid an attempt")
	delivered := map[string]bool{}
	text, err := os.ReadFile(o.delivered)
	require.NoError(t, err)
	for id := range strings.Lines(string(text)) {
		delivered[id] = true
	}
	assert.Len(t, delivered, 4*each-3+later)
}

// Of eight brokers three are down, each in its own way: nobody listens, nobody answers, connections
// break. The other five deliver all that is there and all that comes; when the three are back, they
// get everything, in order, and no message has paid for it.
func TestEightBrokersThreeDown(t *testing.T) {
	t.Parallel()
	onServersInTurn(t, testEightBrokersThreeDown)
}

func testEightBrokersThreeDown(t *testing.T, p *place) {
	t.Helper()
	n := &neighbours{bench: newBench(p), networks: map[string]*toxic.Proxy{}}
	server, err := url.Parse(testenv.Redis(t))
	require.NoError(t, err)
	nobody := deadPort(t)
	addresses := map[string]string{"dead": nobody}
	for _, name := range []string{"one", "two", "three", "four"} { // for Fanout, other servers than the first
		addresses[name] = newSwitchboard(t, server.Host).addr()
	}
	for _, name := range []string{"hung", "broken"} {
		n.networks[name] = toxic.Start(t, server.Host)
		addresses[name] = n.networks[name].Addr(t)
	}
	var config strings.Builder
	for _, name := range []string{"default", "one", "two", "three", "four", "dead", "hung", "broken"} {
		at := *server
		if address, other := addresses[name]; other {
			at.Host = address
		}
		n.names = append(n.names, name)
		fmt.Fprintf(&config, "  %s: {type: redis, url: %q, publish_timeout: 2s, breaker: {max_delay: 1s}}\n", name, &at)
	}
	n.configure(fmt.Sprintf("outbox: {external_brokers: [%s], poll: {max: 200ms}}\nbrokers:\n%s", strings.Join(n.names[1:], ", "), &config))
	migrated := n.run("migrate")
	require.Zero(t, migrated.code, migrated.stderr)
	n.networks["hung"].BlackHole(t)
	n.networks["broken"].Reset(t)
	r := n.relay()
	for range 4 {
		n.insert(250)
		for _, well := range n.names[:5] {
			eventually(t, func() bool { return n.published(well) == n.rows })
		}
	}
	for _, ill := range n.names[5:] {
		assert.Zero(t, n.published(ill), ill)
		says := regexp.MustCompile(ill + ` .*unavailable`) // the status does, for the one that hangs once its publish_timeout is over
		eventually(t, func() bool { return says.MatchString(n.run("status").stdout) })
	}
	assert.Empty(t, n.charged(), "an outage costs no attempt")

	newSwitchboardAt(t, nobody, server.Host)
	for _, network := range n.networks {
		network.Heal(t)
	}
	eventually(t, func() bool { return n.count("finished_at IS NULL") == 0 })
	code, _ := r.stop()
	assert.Zero(t, code)
	assert.Zero(t, n.count("status <> 'published' OR attempts <> 1"))
	for _, name := range n.names {
		t.Logf("%s: %d messages, %d second copies", name, n.rows, n.ledger(name))
	}
}

// charged tells of a row that has paid an attempt without having been delivered.
func (n *neighbours) charged() (row string) {
	n.Helper()
	require.NoError(n, n.db.QueryRowContext(n.Context(), `SELECT coalesce(min(concat(target_broker, ' ', status, ' ', attempts, ' ', last_error)), '')
		FROM outbox_messages WHERE attempts > 0 AND status <> 'published' OR status = 'abandoned'`).Scan(&row))
	return row
}
