package integration_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// Rows written by plain SQL arrive once and in the order of their keys; a stop in the middle loses
// nothing and exits with 0; started again, the relay finishes; and two relays share the work.
func TestRelayProcess(t *testing.T) {
	t.Parallel()
	onServers(t, testRelayProcess)
}

func testRelayProcess(t *testing.T, p *place) {
	t.Helper()
	b := newBench(p)
	require.Zero(t, b.run("migrate").code)
	require.Zero(t, b.run("validate").code)
	const rows = 4000
	b.insert(rows)

	first := b.relay()
	eventually(t, func() bool { return b.arrived() > rows/10 })
	code, published := first.stop()
	assert.Zero(t, code, first.log.String())
	assert.Zero(t, b.count("status = 'processing'"), "nothing stays leased")
	assert.Equal(t, published, b.count("status = 'published' AND attempts = 1"))
	assert.Equal(t, rows-published, b.count("status = 'pending' AND attempts = 0"))

	second, third := b.relay(), b.relay()
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code2, published2 := second.stop()
	code3, published3 := third.stop()
	assert.Zero(t, code2+code3)
	assert.Equal(t, rows, published+published2+published3)
	assert.Equal(t, rows, b.count("status = 'published'"))
	b.checkOrder(rows)

	status := b.run("status", "--json")
	require.Zero(t, status.code)
	var answer map[string]struct {
		Status string
		Counts map[string]int
	}
	require.NoError(t, json.Unmarshal([]byte(status.stdout), &answer))
	assert.Equal(t, rows, answer["default"].Counts["published"])
}

// A malformed row written by hand is abandoned with its reason and does not hold up its neighbours.
func TestMalformedRows(t *testing.T) {
	t.Parallel()
	onServers(t, testMalformedRows)
}

func testMalformedRows(t *testing.T, p *place) {
	t.Helper()
	b := newBench(p)
	require.Zero(t, b.run("migrate").code)
	b.insert(100)
	b.exec("UPDATE outbox_messages SET headers = '{broken' WHERE ordering_key = 'order-5'")
	bad := b.count("headers IS NOT NULL")
	r := b.relay()
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code, _ := r.stop()
	assert.Zero(t, code)
	assert.Equal(t, bad, b.count(`status = 'abandoned' AND last_error LIKE '%malformed%headers%'`))
	assert.Equal(t, 100-bad, b.count("status = 'published'"))
	assert.Contains(t, b.run("status").stdout, "malformed: ")
}

// The statement of docs/plain-sql.md sends abandoned rows again.
func TestAbandonedRowsAgain(t *testing.T) {
	t.Parallel()
	onServers(t, testAbandonedRowsAgain)
}

func testAbandonedRowsAgain(t *testing.T, p *place) {
	t.Helper()
	b := newBench(p)
	require.Zero(t, b.run("migrate").code)
	b.insert(10)
	b.exec("UPDATE outbox_messages SET content_type = 'nonsense'")
	r := b.relay()
	eventually(t, func() bool { return b.count("status = 'abandoned'") == 10 })

	document := testenv.PageCode(t, "plain-sql.md")
	_, rest, ok := strings.Cut(document, "```sql\nUPDATE")
	require.True(t, ok)
	statement, _, _ := strings.Cut("UPDATE"+rest, "```")
	statement = strings.Replace(statement, "'partner'", "'default'", 1)
	b.exec("UPDATE outbox_messages SET content_type = 'application/json'")
	b.exec(statement)
	eventually(t, func() bool { return b.count("status = 'published' AND attempts = 1") == 10 })
	code, _ := r.stop()
	assert.Zero(t, code)
}

// Rows that nobody delivers are named.
func TestUnconfigured(t *testing.T) {
	t.Parallel()
	onServers(t, testUnconfigured)
}

func testUnconfigured(t *testing.T, p *place) {
	t.Helper()
	b := newBench(p)
	require.Zero(t, b.run("migrate").code)
	b.insert(3)
	b.exec("UPDATE outbox_messages SET target_broker = 'removed'")
	validated := b.run("validate")
	assert.Zero(t, validated.code)
	assert.Contains(t, validated.stderr, `rows wait for broker "removed", which is not configured`)
	assert.Contains(t, validated.stdout, "broker default: reached")
	assert.Contains(t, b.run("status").stdout, "removed (not configured!)")
}
