package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// The scenario runs to its end in small sizes and fills in every figure in every run. It fails by
// itself when a message is lost or out of order.
func TestShortSQLite(t *testing.T) {
	t.Setenv(testservers.PostgresVariable, testenv.Postgres(t))
	t.Setenv(testservers.RedisVariable, testenv.Redis(t))
	path := filepath.Join(t.TempDir(), "report.json")
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitDone, run([]string{"sqlite", "--short", "--runs=2", "--json=" + path}, &stdout, &stderr), stderr.String())
	encoded, err := os.ReadFile(path)
	require.NoError(t, err)
	var r report.Report
	require.NoError(t, json.Unmarshal(encoded, &r))
	assert.NotEmpty(t, r.Servers["SQLite"])
	assert.NotEmpty(t, r.Servers["Redis"])
	found := map[string]bool{}
	for _, figure := range r.Figures {
		found[figure.Case+": "+figure.Name] = true
		assert.Len(t, figure.Runs, 2, figure.Name)
		assert.Positive(t, figure.Median, figure.Name)
	}
	for _, name := range []string{
		"by hand to memory: rate", "ordered to memory: of the loop by hand", "unordered to memory: CPU of the process", "by hand to Redis: rate",
		"ordered to Redis: of the loop by hand", "unordered to Redis: rate", "ordered to memory, with a writer: transaction p99",
		"unordered to memory, with a writer: transaction max", "writer alone: transaction p50",
	} {
		assert.Contains(t, found, name)
	}
	assert.NotContains(t, found, "writer alone: rate")
}

func TestUsageSQLite(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"--batch=0", "--rows=2", "--keys=1", "--pause=0", "--payload=0", "--parts=0", "--only=by magic"} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, run([]string{"sqlite", wrong}, &stdout, &stderr), wrong)
		assert.Contains(t, stderr.String(), "bench: ")
	}
}
