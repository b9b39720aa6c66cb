package doccheck_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root of the module, seen from here.
const root = "../../"

// table returns the rows of the table of a document that has this heading, each with its cells.
func table(t *testing.T, document, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(root + document)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+heading+"\n|--")
	require.True(t, found, "%s has no table %q", document, heading)
	_, rest, _ = strings.Cut(rest, "\n")
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		line = strings.ReplaceAll(line, `\|`, "\x00")
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
		}
		rows = append(rows, cells)
	}
	require.NotEmpty(t, rows)
	return rows
}

// spans are the pieces of code in a cell.
func spans(cell string) (code []string) {
	for i, part := range strings.Split(cell, "`") {
		if i%2 == 1 {
			code = append(code, part)
		}
	}
	return code
}
