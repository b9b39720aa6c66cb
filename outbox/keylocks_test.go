package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/gorm-fanout/fanout/internal/testenv"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// keyed are rows of these keys.
func keyed(keys ...string) []outbox.Row {
	rows := make([]outbox.Row, len(keys))
	for i, key := range keys {
		rows[i].OrderingKey = key
	}
	return rows
}

// locked returns the statements that lock the keys of rows, and the slots that each of them names.
func locked(t *testing.T, dialect outbox.Dialect, rows []outbox.Row) (texts []string, slots [][]int) {
	t.Helper()
	inserter, err := outbox.NewInserter(dialect, "app.outbox_messages")
	require.NoError(t, err)
	var got spy
	require.NoError(t, inserter.LockKeys(t.Context(), &got, rows))
	for _, args := range got.args {
		require.Len(t, args, 1)
		var named []int
		list := args[0].(string)
		if dialect == outbox.SQLServer {
			require.Contains(t, []int{4, 16, 64, 256, 1024, 4096}, len(list), "each length is a plan of its own")
			list = strings.TrimRight(list, " ")
		}
		for number := range strings.SplitSeq(list, ",") {
			slot, err := strconv.Atoi(number)
			require.NoError(t, err)
			named = append(named, slot)
		}
		slots = append(slots, named)
	}
	return got.texts, slots
}

// The text for SQL Server, which no test of ours can run everywhere, is kept. SQLite needs no lock.
func TestLockKeysSQL(t *testing.T) {
	t.Parallel()
	texts, _ := locked(t, outbox.SQLServer, keyed("a"))
	require.Len(t, texts, 1)
	testenv.Golden(t, goldens, "testdata/lockkeys_sqlserver.golden.sql", texts[0]+"\n")
	texts, _ = locked(t, outbox.SQLite, keyed("a"))
	assert.Empty(t, texts)
}

// Each slot once and in order, whatever the order of the rows: two flushes cannot wait for each
// other.
func TestLockKeysInOrder(t *testing.T) {
	t.Parallel()
	for _, dialect := range []outbox.Dialect{outbox.Postgres, outbox.SQLServer, outbox.MySQL} {
		_, there := locked(t, dialect, keyed("a", "b", "", "c", "c", "a"))
		_, back := locked(t, dialect, keyed("c", "a", "b", "b", ""))
		require.Len(t, there, 1, "one statement")
		assert.Len(t, there[0], 3)
		assert.IsIncreasing(t, there[0])
		assert.Equal(t, there, back)

		texts, _ := locked(t, dialect, keyed("", ""))
		assert.Empty(t, texts, "rows without a key have nothing to wait for")
		texts, _ = locked(t, dialect, nil)
		assert.Empty(t, texts)
	}
}

// The slots are a contract with writers in other languages, see docs/plain-sql.md: PostgreSQL
// computes the same by (get_byte(h, 0) * 256 + get_byte(h, 1)) % 1024, where h is
// sha256(convert_to(key, 'UTF8')).
func TestLockKeysSlots(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{"a": 663, "ordering::order-42": 377, "schlüssel 鍵 🔑": 102} {
		_, slots := locked(t, outbox.Postgres, keyed(key))
		assert.Equal(t, [][]int{{want}}, slots, key)
	}
}

// broken is a database that refuses everything.
type broken struct{ err error }

func (b broken) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, b.err }

type stateError string

func (e stateError) Error() string    { return "SQLSTATE " + string(e) }
func (e stateError) SQLState() string { return string(e) }

func TestLockKeysErrors(t *testing.T) {
	t.Parallel()
	inserter, err := outbox.NewInserter(outbox.Postgres, "app.outbox_messages")
	require.NoError(t, err)
	gone := errors.New("gone")
	err = inserter.LockKeys(t.Context(), broken{gone}, keyed("a", "b"))
	require.ErrorIs(t, err, gone)
	require.NotErrorIs(t, err, outbox.ErrSchema)
	require.ErrorContains(t, err, "outbox: lock the ordering keys of 2 rows of app.outbox_messages: ")
	require.ErrorIs(t, inserter.LockKeys(t.Context(), broken{stateError("42P01")}, keyed("a")), outbox.ErrSchema)
	require.NoError(t, inserter.LockKeys(t.Context(), broken{gone}, keyed("")))
}
