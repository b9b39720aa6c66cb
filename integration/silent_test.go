package integration_test

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// A relay of another machine that has sent half of a claim, and whose network is well, keeps its shard for
// seconds: the relays that go on say who it is, and end its session.
func TestSilentRelay(t *testing.T) {
	t.Parallel()
	testenv.NeedLong(t) // the relay waits for half a minute before it ends the session
	b := newBench(newPlace(t, outbox.Postgres))
	require.Zero(t, b.run("migrate").code)
	b.insert(970)
	other, err := pgconn.Connect(t.Context(), b.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Conn().Close() })
	lock := fnv.New32a()
	_, _ = lock.Write([]byte("shard\x001\x00default")) // as the store names it
	half := other.StartPipeline(t.Context())
	half.SendQueryParams("BEGIN", nil, nil, nil, nil)
	half.SendQueryParams(fmt.Sprintf("SELECT pg_advisory_xact_lock('outbox_messages'::regclass::oid::int, %d)", int32(lock.Sum32())), nil, nil, nil, nil)
	half.SendFlushRequest()
	require.NoError(t, half.Flush())
	for range 2 {
		result, err := half.GetResults()
		require.NoError(t, err)
		_, err = result.(*pgconn.ResultReader).Close()
		require.NoError(t, err)
	}
	held := b.count("shard = 1")
	require.Positive(t, held)
	r := b.relay()
	eventually(t, func() bool { return b.count("status = 'published'") == 970-held })
	eventually(t, func() bool { return strings.Contains(r.log.String(), `"shard held by another session"`) })
	assert.Contains(t, r.log.String(), fmt.Sprintf(`"session":"process %d, `, other.PID()))
	assert.Contains(t, r.log.String(), "silent in the middle of a transaction")
	eventually(t, func() bool { return b.count("status = 'published'") == 970 })
	code, _ := r.stop()
	assert.Zero(t, code)
	b.checkOrder(970)
	assert.Equal(t, 970, b.count("attempts = 1"))
	assert.Contains(t, r.log.String(), `"ended":true`)
	assert.NotContains(t, r.log.String(), "database call failed")
}
