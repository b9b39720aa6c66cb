package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// The server ends the relay's idle sessions sooner than the relay polls, and no call of the relay fails.
// The timeout is longer than a busy machine keeps a process waiting between taking a connection and
// using it: the server can end the session in that time, too.
func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(newPlace(t, outbox.Postgres))
	require.Zero(t, b.run("migrate").code)
	b.dsn += "&idle_session_timeout=1500ms"
	b.configure(fmt.Sprintf("outbox: {poll: {min: 3s, max: 3s}, external_brokers: []}\nbrokers: {default: {type: redis, url: %q}}\n", testenv.Redis(t)))
	r := b.relay()
	eventually(t, func() bool {
		var ended int
		require.NoError(t, b.db.QueryRowContext(t.Context(), "SELECT sessions_fatal FROM pg_stat_database WHERE datname = current_database()").Scan(&ended))
		return ended > 1
	})
	b.insert(500)
	eventually(t, func() bool { return b.count("finished_at IS NULL") == 0 })
	code, published := r.stop()
	assert.Equal(t, []int{0, 500}, []int{code, published})
	assert.NotContains(t, r.log.String(), `"ERROR"`)
}
