package fanoutvet_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = ".."

// shop is a module of an application: that of testdata/shop, with the library of this repository,
// and what that needs, in go.mod. It is not in testdata itself, as it would have to follow every
// change of the library's go.mod.
func shop(t *testing.T) string {
	t.Helper()
	_ = os.Getenv("FANOUT_TEST_TREE") // the result depends on the library, whose files go test does not see: see testenv.UsesAllFiles
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/shop")))
	library, err := filepath.Abs(root)
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(library, "go.mod"))
	require.NoError(t, err)
	rest, ok := strings.CutPrefix(string(mod), "module github.com/gorm-fanout/fanout\n")
	require.True(t, ok)
	mod = []byte("module example.com/shop\n" + rest + "\nrequire github.com/gorm-fanout/fanout v0.0.0\nreplace github.com/gorm-fanout/fanout => " + library + "\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600))
	sum, err := os.ReadFile(filepath.Join(library, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600))
	return dir
}

// tool builds the command.
func tool(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fanoutvet")
	_, err := run(t, ".", "go", "build", "-o", path, "./cmd/fanoutvet")
	require.NoError(t, err)
	return path
}

// run runs a command and returns all that it prints.
func run(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	t.Logf("%s %s\n%s", name, strings.Join(args, " "), out)
	return string(out), err
}
