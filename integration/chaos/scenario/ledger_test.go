package scenario_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// A process that was killed in the middle of a line costs no other line.
func TestTornLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.ledger")
	read := func() (lines []scenario.Line) {
		require.NoError(t, scenario.ReadLedger(path, func(line scenario.Line) { lines = append(lines, line) }))
		return lines
	}
	assert.Empty(t, read(), "a process that never started")

	ledger, err := scenario.OpenLedger(path)
	require.NoError(t, err)
	require.NoError(t, ledger.Write(scenario.Line{Tx: "a", Outcome: scenario.Committed}, scenario.Line{Tx: "b", Outcome: scenario.Unknown}))
	require.NoError(t, ledger.Close())
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = file.WriteString(`{"tx":"c","outc`)
	require.NoError(t, err)
	require.NoError(t, file.Close())

	ledger, err = scenario.OpenLedger(path)
	require.NoError(t, err)
	require.NoError(t, ledger.Write(scenario.Line{Tx: "d"}))
	require.NoError(t, ledger.Close())
	assert.Equal(t, []scenario.Line{{Tx: "a", Outcome: scenario.Committed}, {Tx: "b", Outcome: scenario.Unknown}, {Tx: "d"}}, read())
}
