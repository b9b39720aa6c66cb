package sqlite

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWantedFacts keeps schema.facts to what the migrations make; FANOUT_UPDATE_GOLDEN writes it
// anew.
func TestWantedFacts(t *testing.T) {
	t.Parallel()
	// A name that stands for nothing else, so that it can be told apart where it stands in the
	// facts.
	const table = "tname"
	store, err := New(openDB(t, filepath.Join(t.TempDir(), "outbox.db")), table)
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	facts, err := store.facts(t.Context(), tablesOf(t, store))
	require.NoError(t, err)
	got := "# What the migrations make, as sql/facts.sql sees it. A test writes this file.\n" + facts.Template(table)
	if os.Getenv("FANOUT_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("schema.facts", []byte(got), 0o600))
	}
	assert.Equal(t, wantedText, got, "FANOUT_UPDATE_GOLDEN=1 go test -run %s", t.Name())
}

// tablesOf lists the tables in the order in which the migrations made them.
func tablesOf(t *testing.T, store *Store) []string {
	t.Helper()
	var names []string
	require.NoError(t, store.read(t.Context(), func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> ? || '_migrations' ORDER BY rowid", store.table))
	return names
}
