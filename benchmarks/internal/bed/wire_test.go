package bed

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func message(letter, text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(letter), uint32(4+len(text))), text...)
}

// sink takes what is written.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error) { return len(p), nil }

// Messages are counted however they are cut into writes, and what looks like one within another is not.
func TestWire(t *testing.T) {
	t.Parallel()
	all := message("", "user\x00someone\x00") // the start-up message has no letter
	for _, m := range [][]byte{
		message("P", "\x00SELECT 1\x00"), message("B", "E\x00\x00\x00\x04Q"), message("E", "\x00"), message("E", "\x00"), message("S", ""),
		message("Q", "BEGIN\x00"), message("Q", "-- ping\x00"), message("X", ""),
	} {
		all = append(all, m...)
	}
	for _, size := range []int{1, 3, 7, len(all)} {
		var wire Wire
		conn := &wireConn{Conn: sink{}, wire: &wire}
		for from := 0; from < len(all); from += size {
			_, err := conn.Write(all[from:min(from+size, len(all))])
			require.NoError(t, err)
		}
		statements, pings := wire.Statements()
		assert.Equal(t, int64(4), statements)
		assert.Equal(t, int64(1), pings)
		assert.Empty(t, conn.partial)
	}
}

// The count is that of the server.
func TestWireOfServer(t *testing.T) {
	t.Parallel()
	var wire Wire
	config, err := pgxpool.ParseConfig(testenv.Postgres(t))
	require.NoError(t, err)
	wire.Count(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	before, _ := wire.Statements()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	for range 3 {
		_, err = tx.Exec(t.Context(), "SELECT $1::int", 1)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, conn.Ping(t.Context()))
	after, pings := wire.Statements()
	assert.Equal(t, int64(6), after-before)
	assert.Equal(t, int64(1), pings)
}
