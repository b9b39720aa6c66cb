package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A pause stops all relays, holds for those that start meanwhile, costs no row an attempt, and ends
// where it began.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	onServersInTurn(t, testPauseAndResume)
}

func testPauseAndResume(t *testing.T, p *place) {
	t.Helper()
	b := newBench(p)
	require.Zero(t, b.run("migrate").code)
	const rows = 1000
	b.insert(rows)
	limited := fmt.Sprintf("outbox: {external_brokers: []}\nbrokers:\n  default: {type: redis, url: %q, rate: 50}\n", testenv.Redis(t)) // so that it is paused in time
	b.configure(limited)
	first, second := b.relay(), b.relay()
	eventually(t, func() bool { return b.arrived() > rows/20 })

	paused := b.run("broker", "pause", "default", "--reason", "a drill", "--by", "ada")
	require.Zero(t, paused.code, paused.stderr)
	assert.Equal(t, "default: broker default is paused\n", paused.stdout)
	// Quiet for longer than poll.max, which is a second.
	quiet := func() (sent int) {
		begun := time.Now()
		eventually(t, func() bool {
			if now := b.arrived(); now != sent || b.count("status = 'processing'") > 0 {
				sent, begun = now, time.Now()
			}
			return time.Since(begun) > 1500*time.Millisecond
		})
		return sent
	}
	sent := quiet()
	require.Less(t, sent, rows, "it was paused too late")
	assert.Equal(t, rows-sent, b.count("status = 'pending' AND attempts = 0"))
	b.insert(100)
	b.configure(strings.Replace(limited, ", rate: 50", "", 1))
	third := b.relay()
	assert.Equal(t, sent, quiet(), "nothing goes out")
	status := b.run("status")
	assert.Contains(t, status.stdout, "default (paused)")
	assert.Contains(t, b.run("status", "--json").stdout, `"reason": "a drill"`)
	assert.Contains(t, b.run("broker", "pause", "default").stdout, "was paused already")

	require.Zero(t, b.run("broker", "resume", "default").code)
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	for _, relay := range []*relayProcess{first, second, third} {
		code, _ := relay.stop()
		assert.Zero(t, code)
		assert.Contains(t, relay.log.String(), "broker paused")
		assert.Regexp(t, `broker paused.*"by":"ada","reason":"a drill","since":"20`, relay.log.String())
	}
	assert.Equal(t, rows+100, b.count("status = 'published' AND attempts = 1"))
	assert.Equal(t, rows+100, b.arrived(), "once each")

	wrong := b.run("broker", "pause", "nobody")
	assert.Equal(t, 1, wrong.code)
	assert.Contains(t, wrong.stderr, `there is no broker "nobody", in the configuration or in a table: there are ["default"]`)
	assert.Equal(t, 2, b.run("broker", "resume").code)
	assert.Equal(t, 2, b.run("broker", "resume", "default", "--database", "x").code)

	// A pause outlives its broker's entry in the configuration, and can be ended all the same.
	b.exec("INSERT INTO outbox_messages_pauses (target_broker) VALUES ('removed')")
	assert.Equal(t, "default: broker removed is resumed\n", b.run("broker", "resume", "removed").stdout)
	assert.Equal(t, 1, b.run("broker", "resume", "removed").code)
}
