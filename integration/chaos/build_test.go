//go:build unix

package chaos

import (
	"os"
	"path/filepath"
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

func TestEditThatDoesNotFit(t *testing.T) {
	t.Parallel()
	b := &builder{dir: t.TempDir(), module: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(b.module, "a.go"), []byte("one two; two three"), 0o600))
	for _, old := range []string{"four", "two"} {
		_, err := b.overlay("x", []edit{{"a.go", old, "new"}})
		require.ErrorContains(t, err, "adapt the edit")
	}
	_, err := b.overlay("x", []edit{{"missing.go", "a", "b"}})
	require.ErrorIs(t, err, os.ErrNotExist)

	_, err = b.overlay("x", []edit{{"a.go", "one", "1"}, {"a.go", "three", "3"}})
	require.NoError(t, err)
	copied, err := os.ReadFile(filepath.Join(b.dir, "x-0-a.go"))
	require.NoError(t, err)
	assert.Equal(t, "1 two; two 3", string(copied))
}

func TestClockOfUnknownGo(t *testing.T) {
	t.Parallel()
	goroot := t.TempDir()
	_, err := wrongClock(goroot)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.MkdirAll(filepath.Join(goroot, "src", "time"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(goroot, clockFile), []byte("package time"), 0o600))
	_, err = wrongClock(goroot)
	require.ErrorContains(t, err, "clockReadings")
}
