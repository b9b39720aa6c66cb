package integration_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// upgradeFromVariable names the commit or tag that the test of rolling upgrades takes for the old
// version. Default: the newest tag, or where there is none the newest commit with other code.
const upgradeFromVariable = "FANOUT_TEST_UPGRADE_FROM"

// version is a build of the library: the command, and a writer.
type version struct {
	name          string
	relay, writer string
}

const (
	writerSource  = "testdata/upgrade/main.go"
	writerPackage = "integration/upgradewriter"
)

// currentVersion builds the writer beside the command that all tests have. The writer's source is
// none of our packages, and is laid over.
func currentVersion(t *testing.T) version {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs(writerSource)
	require.NoError(t, err)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, writerPackage, "main.go"): source}})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	v := version{name: "this one", relay: fanoutCommand(), writer: filepath.Join(dir, "writer")}
	compile(t, root, "-overlay", file, "-o", v.writer, "./"+writerPackage)
	return v
}

// previousVersion builds the version before, or skips the test, aloud, where there is none that can
// run beside this one.
func previousVersion(t *testing.T) version {
	t.Helper()
	commit, name := previousCommit(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	source, err := os.ReadFile(writerSource)
	require.NoError(t, err)
	sum := sha256.Sum256(source) // a writer of another text is another program
	dir := filepath.Join(cache, "fanout-test", commit+"-"+hex.EncodeToString(sum[:6]))
	v := version{name: name, relay: filepath.Join(dir, "fanout"), writer: filepath.Join(dir, "writer")}
	if exists(v.relay) && exists(v.writer) {
		return v
	}
	tree := t.TempDir()
	archive := filepath.Join(t.TempDir(), "tree.tar")
	_, err = git(t, "archive", "--format=tar", "-o", archive, commit)
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", tree).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.MkdirAll(filepath.Join(tree, writerPackage), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(tree, writerPackage, "main.go"), source, 0o600))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	// Under another name first: a run that is broken off leaves nothing that looks whole.
	for _, program := range [][2]string{{v.relay, "./cmd/fanout"}, {v.writer, "./" + writerPackage}} {
		half := program[0] + ".half"
		compile(t, tree, "-o", half, program[1])
		require.NoError(t, os.Rename(half, program[0]))
	}
	return v
}

// previousCommit finds the old version.
func previousCommit(t *testing.T) (commit, name string) {
	t.Helper()
	if _, err := git(t, "rev-parse", "HEAD"); err != nil {
		t.Skipf("NOT TESTED: a rolling upgrade: there is no git here, or no repository: %v", err)
	}
	name = os.Getenv(upgradeFromVariable)
	if name == "" {
		name, _ = git(t, "describe", "--tags", "--abbrev=0", "HEAD^") // fails where there is no tag
	}
	if name == "" {
		all, err := git(t, "rev-list", "--first-parent", "-n", "50", "HEAD")
		require.NoError(t, err)
		for candidate := range strings.FieldsSeq(all) {
			if differs(t, candidate, "*.go", "*.sql", "*go.mod", ":!*_test.go", ":!integration", ":!benchmarks", ":!examples", ":!internal/test*", ":!internal/toxic") {
				name = candidate
				break
			}
		}
	}
	if name == "" {
		t.Skip("NOT TESTED: a rolling upgrade: the repository holds no older version (is it a shallow clone?)")
	}
	commit, err := git(t, "rev-parse", "--verify", name+"^{commit}")
	require.NoError(t, err, name)
	if differs(t, commit, "outbox/postgres/migrations") {
		t.Skipf("NOT TESTED: a rolling upgrade: the version before (%s) has another migration, since migrations are edited in place before the first release; "+
			"name an older or newer one by %s", name, upgradeFromVariable)
	}
	subject, _ := git(t, "log", "-1", "--format=%h %s", commit)
	return commit, subject
}

// differs reports whether the files here are others than those of a commit.
func differs(t *testing.T, commit string, paths ...string) bool {
	t.Helper()
	_, err := git(t, append([]string{"diff", "--quiet", commit, "--"}, paths...)...)
	return err != nil
}

// git runs a command in the repository.
func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0") // nobody's index is touched
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

func compile(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", append([]string{"build"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
