package doccheck_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests compile and run the README's program.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(root + "README.md")
	require.NoError(t, err)
	program, err := os.ReadFile(root + "examples/first/main.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found, "it has a program")
	shown, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	assert.Equal(t, string(program), shown, "the program of the README is examples/first/main.go")
}
