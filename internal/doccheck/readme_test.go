package doccheck_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The README is read by those who do not know yet whether they want to: it is short, and its program is
// one that is compiled and run by the tests.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "README.md")
	require.NoError(t, err)
	readme := string(text)
	assert.LessOrEqual(t, len(strings.Fields(readme)), 900, "words")
	assert.LessOrEqual(t, strings.Count(readme, "\n"), 140, "lines")

	program, err := os.ReadFile(root + "examples/first/main.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(readme, "```go\n")
	require.True(t, found, "it has a program")
	shown, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	assert.Equal(t, string(program), shown, "the program of the README is examples/first/main.go")
}
