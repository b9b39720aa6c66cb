package outbox_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// spy keeps the statements that it is given.
type spy struct {
	texts []string
	args  [][]any
}

func (s *spy) ExecContext(_ context.Context, text string, args ...any) (sql.Result, error) {
	s.texts, s.args = append(s.texts, text), append(s.args, args)
	return nil, nil //nolint:nilnil // nobody looks at it
}

// The statements as each database gets them; -update writes the files anew.
func TestInsertSQL(t *testing.T) {
	t.Parallel()
	rows := []outbox.Row{
		{MessageID: uuid.MustParse("0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b"), TargetBroker: "default", Stream: "s", Type: "t", Payload: []byte("{}")},
		{
			MessageID: uuid.MustParse("0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b"), TargetBroker: "partner", Stream: "s", Type: "t", Payload: []byte("{}"),
			AvailableAt: time.Date(2026, 1, 2, 3, 4, 5, 6789, time.FixedZone("x", 3600)),
		},
	}
	for _, dialect := range []outbox.Dialect{outbox.Postgres, outbox.SQLServer, outbox.SQLite} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			inserter, err := outbox.NewInserter(dialect, "outbox_messages")
			require.NoError(t, err)
			var got spy
			require.NoError(t, inserter.Insert(t.Context(), &got, rows))
			require.NoError(t, inserter.InsertMissing(t.Context(), &got, rows))
			file := filepath.Join("testdata", "insert_"+string(dialect)+".golden.sql")
			text := strings.Join(got.texts, "\n\n") + "\n"
			if os.Getenv("FANOUT_UPDATE_GOLDEN") != "" {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), text)
			assert.Len(t, got.args[0], 32)
			if dialect == outbox.SQLite {
				assert.EqualValues(t, 1767319445000006, got.args[0][16+13], "microseconds since 1970, UTC")
			}
		})
	}
}

// Statements are cut by each database's own limits.
func TestInsertChunks(t *testing.T) {
	t.Parallel()
	rows := make([]outbox.Row, 1001)
	for dialect, statements := range map[outbox.Dialect]int{outbox.Postgres: 3, outbox.SQLite: 3, outbox.SQLServer: 9} {
		inserter, err := outbox.NewInserter(dialect, "outbox_messages")
		require.NoError(t, err)
		var got spy
		require.NoError(t, inserter.Insert(t.Context(), &got, rows))
		assert.Len(t, got.texts, statements, dialect)
		for _, args := range got.args {
			assert.LessOrEqual(t, len(args), map[outbox.Dialect]int{outbox.Postgres: 65535, outbox.SQLite: 32766, outbox.SQLServer: 2098}[dialect])
		}
	}
	_, err := outbox.NewInserter(outbox.Postgres, "a b")
	require.Error(t, err)
}
