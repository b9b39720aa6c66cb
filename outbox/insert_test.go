package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/gorm-fanout/fanout/internal/testenv"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed testdata/*.golden.sql
var goldens embed.FS

// spy keeps the statements that it is given.
type spy struct {
	texts []string
	args  [][]any
}

func (s *spy) ExecContext(_ context.Context, text string, args ...any) (sql.Result, error) {
	s.texts, s.args = append(s.texts, text), append(s.args, args)
	return driver.RowsAffected(1 << 20), nil // whatever it was given
}

func (*spy) Commit() error { return nil }

func (*spy) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.ErrUnsupported
}

// Times and ids are bound as each database takes them. The text for SQL Server, which no test of ours
// can run everywhere, is kept.
func TestInsertSQL(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b")
	rows := []outbox.Row{
		{MessageID: id, TargetBroker: "default", Stream: "s", Type: "t", Payload: []byte("{}")},
		{
			MessageID: id, TargetBroker: "partner", Stream: "s", Type: "t", Payload: []byte("{}"),
			AvailableAt: time.Date(2026, 1, 2, 3, 4, 5, 6789, time.FixedZone("x", 3600)),
		},
	}
	const availableAt = 16 + 13 // of the second row
	insert := func(dialect outbox.Dialect) spy {
		inserter, err := outbox.NewInserter(dialect, "outbox_messages")
		require.NoError(t, err)
		var got spy
		require.NoError(t, inserter.Insert(t.Context(), &got, rows))
		require.NoError(t, inserter.InsertMissing(t.Context(), &got, rows))
		return got
	}
	assert.EqualValues(t, 1767319445000006, insert(outbox.SQLite).args[0][availableAt], "microseconds since 1970, UTC")
	mysql := insert(outbox.MySQL).args[0]
	assert.Equal(t, "2026-01-02 02:04:05.000006", mysql[availableAt], "UTC, whatever the time zone of the DSN")
	assert.Equal(t, "0197f0a27d1c7c3ba3a51c2d3e4f5a6b", mysql[0], "bytes that are no UTF-8 would hide other sessions")
	got := insert(outbox.SQLServer)
	testenv.Golden(t, goldens, "testdata/insert_sqlserver.golden.sql", strings.Join(got.texts, "\n\n")+"\n")
	const fields = `"message_id": "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b", "stream": "s", "type": "t", "priority": 0,
		"content_type": "application/json", "payload": "7b7d", "payload_at": 0, "payload_bytes": 0`
	assert.JSONEq(t, `[{"ordinal": 0, "target_broker": "default", `+fields+`},
		{"ordinal": 1, "target_broker": "partner", "available_at": "2026-01-02T02:04:05.000006", `+fields+`}]`, got.args[0][0].(string))
}

// Statements are cut by each database's own limits.
func TestInsertChunks(t *testing.T) {
	t.Parallel()
	rows := make([]outbox.Row, 1001)
	for dialect, parameters := range map[outbox.Dialect]int{outbox.Postgres: 65535, outbox.SQLite: 32766, outbox.SQLServer: 2, outbox.MySQL: 65535} {
		inserter, err := outbox.NewInserter(dialect, "outbox_messages")
		require.NoError(t, err)
		var got spy
		require.NoError(t, inserter.Insert(t.Context(), &got, rows))
		assert.Len(t, got.texts, 3, dialect)
		for _, args := range got.args {
			assert.LessOrEqual(t, len(args), parameters)
		}
	}
	_, err := outbox.NewInserter(outbox.Postgres, "a b")
	require.Error(t, err)
}

// A statement for MySQL is one packet, of a bounded size, but for a message that is larger alone.
func TestInsertPackets(t *testing.T) {
	t.Parallel()
	inserter, err := outbox.NewInserter(outbox.MySQL, "outbox_messages")
	require.NoError(t, err)
	var got spy
	rows := make([]outbox.Row, 7)
	for i, size := range []int{3 << 20, 1 << 20, 1, 6 << 20, 2 << 20, 1 << 20, 0} {
		rows[i].Payload = make([]byte, size)
	}
	require.NoError(t, inserter.Insert(t.Context(), &got, rows))
	var cut []int
	for _, args := range got.args {
		cut = append(cut, len(args)/16)
	}
	assert.Equal(t, []int{2, 1, 1, 3}, cut)
}

// Whatever the number of rows and the length of what they hold: SQL Server sees two texts, each with
// one declaration of its parameters, so that it plans each once. The driver declares a text of up to
// 4,000 UTF-16 code units, and up to 8,000 bytes, by its length, and all others as (max).
func TestInsertDeclarations(t *testing.T) {
	t.Parallel()
	inserter, err := outbox.NewInserter(outbox.SQLServer, "outbox_messages")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		rows := make([]outbox.Row, rapid.IntRange(1, 30).Draw(t, "rows"))
		total := 0
		for i := range rows {
			rows[i] = outbox.Row{
				MessageID: uuid.New(), TargetBroker: "b", Stream: rapid.StringMatching(`[a-zé€]{1,100}`).Draw(t, "stream"), Type: "t",
				Payload: rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "payload"),
			}
			total += len(rows[i].Payload)
		}
		var got spy
		require.NoError(t, inserter.Insert(context.Background(), &got, rows))
		args := got.args[0]
		text := args[0].(string)
		require.Greater(t, len(utf16.Encode([]rune(text))), 4000)
		var items []struct {
			Payload      string
			PayloadAt    int `json:"payload_at"`
			PayloadBytes int `json:"payload_bytes"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &items))
		require.Len(t, items, len(rows))
		require.Equal(t, total > 8000, len(args) == 2, "payloads apart")
		if len(args) == 2 {
			payloads := args[1].([]byte)
			require.Greater(t, len(payloads), 8000)
			require.Len(t, payloads, total)
			for i, item := range items {
				require.Equal(t, string(rows[i].Payload), string(payloads[item.PayloadAt-1:][:item.PayloadBytes]))
			}
			return
		}
		for i := range items {
			payload, err := hex.DecodeString(items[i].Payload)
			require.NoError(t, err)
			require.Equal(t, string(rows[i].Payload), string(payload))
		}
	})
}
