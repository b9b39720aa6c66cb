package integration_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// restricted gives the relay a role of its own that the database has set like that.
func (b *bench) restricted(outbox string, settings ...string) {
	b.Helper()
	role := "fanout_few_" + strings.ToLower(rand.Text()[:8])
	execute := func(statement string) {
		_, err := b.db.ExecContext(context.WithoutCancel(b.Context()), statement)
		require.NoError(b, err, statement)
	}
	execute("CREATE ROLE " + role + " LOGIN PASSWORD 'few'")
	b.Cleanup(func() { execute("DROP OWNED BY " + role); execute("DROP ROLE " + role) })
	execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role)
	execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO " + role)
	for _, setting := range settings {
		execute("ALTER ROLE " + role + " " + setting)
	}
	dsn, err := url.Parse(b.dsn)
	require.NoError(b, err)
	dsn.User = url.UserPassword(role, "few")
	b.dsn = dsn.String()
	b.configure(fmt.Sprintf("outbox: %[1]s\nbrokers:\n  default: {type: redis, url: %[2]q}\n  a: {type: redis, url: %[2]q, destination: \"{stream}.a\"}\n"+
		"  b: {type: redis, url: %[2]q, destination: \"{stream}.b\"}\n", outbox, testenv.Redis(b)))
}

// statistic is one of those that the server keeps of the database.
func (b *bench) statistic(name string) (n int) {
	b.Helper()
	require.NoError(b, b.db.QueryRowContext(b.Context(), "SELECT "+name+" FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
	return n
}

// The server ends the relay's idle sessions sooner than the relay polls: none of its calls meets that.
// The timeout is longer than a busy machine keeps a process waiting between taking a connection and
// using it, in which the server may end the session, too.
func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(newPlace(t, outbox.Postgres))
	require.Zero(t, b.run("migrate").code)
	b.restricted("{poll: {min: 3s, max: 3s}, external_brokers: []}", "SET idle_session_timeout = '1500ms'")
	r := b.relay()
	eventually(t, func() bool { return b.statistic("sessions_fatal") > 4 })
	b.insert(500)
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code, published := r.stop()
	assert.Equal(t, []int{0, 500}, []int{code, published})
	assert.NotContains(t, r.log.String(), `"ERROR"`)
}
