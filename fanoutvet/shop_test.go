package fanoutvet_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// tool is the path of the command, which is built once.
func tool(t *testing.T) string {
	t.Helper()
	require.NoError(t, build())
	return filepath.Join(programs, "fanoutvet")
}

var build = sync.OnceValue(func() error {
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", programs+string(filepath.Separator), "./cmd/fanoutvet").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the command: %w: %s", err, out)
	}
	return nil
})

// programs is the directory of what the tests build.
var programs string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if programs, err = os.MkdirTemp("", "fanoutvet-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(programs)
		return m.Run()
	}())
}

// A result is all that a command has printed, and how it ended.
type result struct {
	out string
	err error
}

func run(t *testing.T, dir, name string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=") // what go vet finds in one copy of the shop is not to come from its cache for another
	out, err := cmd.CombinedOutput()
	t.Logf("%s %s\n%s", name, strings.Join(args, " "), out)
	return result{string(out), err}
}
