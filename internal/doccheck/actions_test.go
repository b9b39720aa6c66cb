package doccheck_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var pinned = regexp.MustCompile(`^ *(- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// Others' actions run with the rights of the workflow: each is one commit of theirs, and not what a name
// leads to by then.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(root + ".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "uses:") {
				assert.Regexp(t, pinned, strings.TrimRight(line, "\n"), file)
			}
		}
	}
}
