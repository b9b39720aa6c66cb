package mysql

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// TestFacts: the wanted facts are those of what the migrations make. FANOUT_UPDATE_GOLDEN=1 writes
// them, on MariaDB.
func TestFacts(t *testing.T) {
	t.Parallel()
	const table = "fanout_table_of_facts"
	store := newStore(t, openDB(t, testenv.MySQL(t)), table)
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	var tables []string
	for _, suffix := range []string{"", "_key_blocks", "_shards", "_key_slots", "_pauses", "_instances", "_audit"} {
		tables = append(tables, table+suffix)
	}
	live, err := store.catalog(t.Context(), tables)
	require.NoError(t, err)
	live = live.With(schemacheck.Table+table+"_key_slots", "number of rows", "1024")
	if os.Getenv("FANOUT_UPDATE_GOLDEN") == "1" {
		text := "# What the migrations make, as sql/facts.sql sees it. Written by TestFacts.\n" + live.Template(table)
		require.NoError(t, os.WriteFile("schema.facts", []byte(text), 0o600))
		return
	}
	require.NoError(t, store.Check(t.Context()))
}
