package outbox

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noted keeps the statements that it is given.
type noted struct {
	texts []string
	args  [][]any
}

func (n *noted) ExecContext(_ context.Context, text string, args ...any) (sql.Result, error) {
	n.texts, n.args = append(n.texts, text), append(n.args, args)
	return nil, nil //nolint:nilnil // nobody looks at it
}

// One statement writes rows that are born claimed and rows that are not. FANOUT_UPDATE_GOLDEN
// writes the files anew.
func TestInsertReserved(t *testing.T) {
	t.Parallel()
	at := Place{Broker: "b", Lease: 90 * time.Second, Token: uuid.MustParse("0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b"), Worker: "w"}
	rows := []Row{{TargetBroker: "a"}, {TargetBroker: "b"}}
	reservation := NewReservation(rows, []Place{at})
	for dialect, lease := range map[Dialect]int64{Postgres: 90_000_000, SQLServer: 90, SQLite: time.Now().Add(90 * time.Second).UnixMicro()} {
		inserter, err := NewInserter(dialect, DefaultTable)
		require.NoError(t, err)
		var got noted
		require.NoError(t, inserter.InsertReserved(t.Context(), &got, rows, reservation))
		require.Len(t, got.texts, 1)
		assert.Equal(t, []any{"pending", nil, nil, nil}, got.args[0][16:20])
		assert.Equal(t, []any{"processing", at.Token.String(), "w"}, got.args[0][36:39])
		assert.InDelta(t, lease, got.args[0][39], 10e6)

		file := filepath.Join("testdata", "insert_claimed_"+string(dialect)+".golden.sql")
		if os.Getenv("FANOUT_UPDATE_GOLDEN") != "" {
			require.NoError(t, os.WriteFile(file, []byte(got.texts[0]+"\n"), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), got.texts[0]+"\n")

		var many noted
		require.NoError(t, inserter.InsertReserved(t.Context(), &many, make([]Row, 1001), reservation))
		total := 0
		for _, args := range many.args {
			total += len(args) / 20
			assert.LessOrEqual(t, len(args), map[Dialect]int{Postgres: 65535, SQLite: 32766, SQLServer: 2098}[dialect])
		}
		assert.Equal(t, 1001, total)

		var plain noted
		require.NoError(t, inserter.InsertReserved(t.Context(), &plain, rows, nil))
		assert.Len(t, plain.args[0], 32, "without a reservation it is Insert")
	}
}

// A lease in the database is never shorter than the one that the process counts on.
func TestClaimedLeaseIsNotCut(t *testing.T) {
	t.Parallel()
	at := &Place{Lease: 1500 * time.Millisecond}
	for dialect, lease := range map[Dialect]int64{Postgres: 1_500_000, SQLServer: 2} {
		assert.Equal(t, lease, dialect.claimedArgs(nil, at)[3], "%s", dialect)
	}
}
