package scene_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/integration/chaos/scene"
)

// A process that was killed in the middle of a line costs no other line.
func TestTornLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.ledger")
	read := func() (lines []scene.Line) {
		require.NoError(t, scene.ReadLedger(path, func(line scene.Line) { lines = append(lines, line) }))
		return lines
	}
	assert.Empty(t, read(), "a process that never started")

	ledger, err := scene.OpenLedger(path)
	require.NoError(t, err)
	require.NoError(t, ledger.Write(scene.Line{Tx: "a", Outcome: scene.Committed}, scene.Line{Tx: "b", Outcome: scene.Unknown}))
	require.NoError(t, ledger.Close())
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = file.WriteString(`{"tx":"c","outc`)
	require.NoError(t, err)
	require.NoError(t, file.Close())

	ledger, err = scene.OpenLedger(path)
	require.NoError(t, err)
	require.NoError(t, ledger.Write(scene.Line{Tx: "d"}))
	require.NoError(t, ledger.Close())
	assert.Equal(t, []scene.Line{{Tx: "a", Outcome: scene.Committed}, {Tx: "b", Outcome: scene.Unknown}, {Tx: "d"}}, read())
}
