package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// files are those of a module.
var files = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.25\n",
	"good/good_test.go": `package good
		import "testing"
		func TestOne(t *testing.T) { t.Log("never seen") }
		func TestTwo(t *testing.T) {
			for _, name := range []string{"Redis", "MySQL", "Kafka"} {
				t.Run(name, func(t *testing.T) { t.Parallel(); t.Log("first"); t.Skip("needs " + name + ": .ci/run starts it (or set " + name + ")") })
			}
			t.Run("over", func(t *testing.T) { t.Cleanup(func() { t.Attr("passed-over", "") }); t.Skip("needs it: .ci/run starts it") })
			t.Run("late", func(t *testing.T) { t.Skip("takes long") })
		}`,
	"none/none.go": "package none",
	"bad/bad_test.go": `package bad
		import "testing"
		func TestFine(t *testing.T) { t.Log("never seen") }
		func TestBad(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Log("what it said"); t.Error("what went wrong") }) }`,
	"panics/panics_test.go": `package panics
		import "testing"
		func TestPanics(t *testing.T) { panic("out of order") }`,
	"broken/broken_test.go": `package broken
		import "testing"
		func TestBroken(t *testing.T) { undefined() }`,
}

// TestMain keeps the seed of this run from those that these tests start.
func TestMain(m *testing.M) {
	_ = os.Unsetenv(seedVariable)
	os.Exit(m.Run())
}

// goTest runs go test in the module, and returns the exit code and what was said, without times.
func goTest(t *testing.T, args ...string) (code int, out, log string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var stdout, stderr bytes.Buffer
	code = run(append([]string{"go", "-C", dir, "test", "-vet=off"}, args...), &stdout, &stderr)
	return code, regexp.MustCompile(`\d+\.\d+s`).ReplaceAllString(stdout.String(), "_s"), stderr.String()
}

func TestPassed(t *testing.T) {
	t.Parallel()
	code, out, log := goTest(t, "./good", "./none")
	assert.Zero(t, code)
	assert.Empty(t, log)
	assert.Regexp(t, `^FANOUT_TEST_SEED=\d+
ok +_s +2 tests +4 skipped +example.com/m/good

2 tests passed, 0 failed, 4 skipped
     1 skipped: takes long
3 tests need Kafka, MySQL or Redis: \.ci/run runs them
$`, out)
}

func TestFailed(t *testing.T) {
	t.Parallel()
	code, out, _ := goTest(t, "-count=1", "./...")
	assert.Equal(t, 1, code)
	assert.NotContains(t, out, "never seen")
	for _, said := range []string{
		"what it said", "what went wrong", "--- FAIL: TestBad/sub", "out of order", "goroutine ", "broken_test.go:3", "undefined: undefined",
		"3 tests passed, 3 failed, 4 skipped", "FAILED: ",
	} {
		assert.Contains(t, out, said)
	}
	assert.Regexp(t, `(?m)^FAIL +_s +3 tests +example.com/m/bad$`, out)
}

func TestVerbose(t *testing.T) {
	t.Parallel()
	code, out, _ := goTest(t, "-v", "-run=TestOne|TestFine", "./good", "./bad")
	assert.Zero(t, code)
	assert.Equal(t, 2, strings.Count(out, "never seen"))
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	code, _, log := goTest(t, "-count=many")
	assert.Equal(t, 2, code, "that of go test")
	assert.Contains(t, log, "many")
	var said bytes.Buffer
	assert.Equal(t, exitCannotRun, run([]string{"/nonexistent", "test"}, &said, &said))
	assert.Contains(t, said.String(), "/nonexistent")
}

// A test that was in progress when go test was ended is named.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := &report{out: &out}
	require.NoError(t, r.read(strings.NewReader(`{"Action":"run","Package":"p","Test":"TestX"}
		{"Action":"output","Package":"p","Test":"TestX","Output":"waiting for rain\n"}
		no event`)))
	r.summary()
	assert.Contains(t, out.String(), "no event")
	assert.Contains(t, out.String(), "did not end: p\nwaiting for rain\n")
}
