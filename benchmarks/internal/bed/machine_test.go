package bed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// purgeable is an age beyond every retention.
const purgeable = 8 * 24 * time.Hour

// Work of the server is seen, also of a connection that has ended meanwhile.
func TestServerCPU(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	database, err := Create(t.Context(), server, "cpu")
	require.NoError(t, err)
	defer func() { require.NoError(t, database.Drop()) }()
	before, ok, err := database.ServerCPU(t.Context())
	require.NoError(t, err)
	if !ok {
		t.Skip("the server's processes are not to be seen here")
	}
	require.NoError(t, administer(t.Context(), server, "SELECT count(md5(n::text)) FROM generate_series(1, 300000) AS n"))
	after, _, err := database.ServerCPU(t.Context())
	require.NoError(t, err)
	assert.Greater(t, after-before, 2*tick)
}

// The peak outlives what it was a peak of. Not parallel: other tests use memory, too.
func TestGauge(t *testing.T) {
	const size = 64 << 20
	quiet := Watch().Stop()
	gauge := Watch()
	block := make([]byte, size)
	for i := range block {
		block[i] = 1
	}
	peak := gauge.Stop()
	assert.Equal(t, byte(1), block[size-1], "it is still there")
	assert.Greater(t, peak.Heap, quiet.Heap+size/2)
	if quiet.Resident > 0 {
		assert.Greater(t, peak.Resident, quiet.Resident+size/2)
	}
}

// Each event has a row for every broker; rows are as old as they were asked to be, and payloads as long and as large.
func TestEvents(t *testing.T) {
	t.Parallel()
	database, err := Create(t.Context(), testenv.Postgres(t), "events")
	require.NoError(t, err)
	defer func() { require.NoError(t, database.Drop()) }()
	table, err := database.Table(t.Context(), "outbox_messages", 1)
	require.NoError(t, err)
	events := Events{Count: 1000, Brokers: []string{"a", "b"}, Stream: "s:", Keys: 10, Payload: 4000, Published: purgeable}
	require.NoError(t, table.FillEvents(t.Context(), t.Output(), events))
	require.NoError(t, table.Backdate(t.Context(), purgeable))
	events.Count, events.Published, events.Brokers = 10, 0, []string{"a"}
	require.NoError(t, table.FillEvents(t.Context(), t.Output(), events))
	for text, want := range map[string]int64{
		"SELECT count(*) FROM {{table}} WHERE published_at < now() - interval '8 days' AND stream = 's:' || target_broker": 2000,
		"SELECT count(DISTINCT published_at) FROM {{table}}":                                                               2,
		"SELECT count(DISTINCT message_id) FROM {{table}}":                                                                 1010,
		"SELECT count(DISTINCT ordering_key) FROM {{table}}":                                                               10,
		"SELECT count(*) FROM {{table}} WHERE status = 'pending' AND created_at < now() - interval '8 days'":               10,
		"SELECT sum(octet_length(payload))::bigint FROM {{table}}":                                                         2010 * 4000,
	} {
		got, err := Get[int64](t.Context(), table, text)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	size, err := table.Size(t.Context())
	require.NoError(t, err)
	assert.Greater(t, size.Toast, int64(2010*4000), "nothing was compressed")
	keys, err := table.KeysOf(t.Context(), "b")
	require.NoError(t, err)
	assert.Len(t, keys, 1000)
}
