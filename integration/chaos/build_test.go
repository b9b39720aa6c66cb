//go:build unix

package chaos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The edits of each defect, and of the wrong clock, fit the sources of today: an edit whose text is
// gone fails here, and before each run.
func TestEditsFit(t *testing.T) {
	t.Parallel()
	b, err := newBuilder(t.Context(), t.TempDir())
	require.NoError(t, err)
	clock, err := wrongClock(b.goroot)
	require.NoError(t, err)
	_, err = b.overlay("clock", clock)
	require.NoError(t, err)
	for _, d := range Defects() {
		assert.NotEmpty(t, d.Rules, d.Name)
		edits, err := defectEdits(d.Name)
		require.NoError(t, err)
		_, err = b.overlay(d.Name, edits)
		require.NoError(t, err)
	}
	_, err = defectEdits("no-such")
	require.ErrorContains(t, err, "no-fence")
}
