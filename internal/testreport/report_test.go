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

	"github.com/gorm-fanout/fanout/internal/testreport/testedwith"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// files are those of a module.
var files = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.25\n",
	"good/good_test.go": `package good
		import "testing"
		func TestOne(t *testing.T) { t.Log("never seen") }
		func TestTwo(t *testing.T) {
			for _, name := range []string{"sqlserver", "oracle"} {
				t.Run(name, func(t *testing.T) { t.Parallel(); t.Log("first"); t.Skip("SQL Server: no server given") })
			}
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

// TestMain keeps what these tests run out of the records of their own run.
func TestMain(m *testing.M) {
	_ = os.Unsetenv(recordVariable)
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
	lines := strings.Split(out, "\n")
	require.Len(t, lines, 5)
	assert.Regexp(t, `^ok +(_s|cached) +2 tests +2 skipped +example.com/m/good$`, lines[0])
	assert.Equal(t, []string{
		"", "2 tests passed, 0 failed, 2 skipped; 1 packages have no tests", "     2 skipped: SQL Server: no server given", "",
	}, lines[1:])
}

func TestFailed(t *testing.T) {
	t.Parallel()
	code, out, _ := goTest(t, "-count=1", "./...")
	assert.Equal(t, 1, code)
	assert.NotContains(t, out, "never seen")
	for _, said := range []string{
		"what it said", "what went wrong", "--- FAIL: TestBad/sub", "out of order", "goroutine ", "broken_test.go:3", "undefined: undefined",
		"3 tests passed, 3 failed, 2 skipped", "FAILED: ",
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

// What was in progress when go test was ended is told.
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

// Tests are counted for the servers that they and those above them are marked with.
func TestRecords(t *testing.T) {
	dir := t.TempDir()
	records := filepath.Join(dir, "records")
	t.Setenv(recordVariable, records)
	t.Setenv(testservers.ServersVariable, `{"FANOUT_TEST_POSTGRES": "PostgreSQL 17.1"}`)
	files["marked/marked_test.go"] = `package marked
		import "testing"
		func TestNone(t *testing.T) {}
		func TestOne(t *testing.T) {
			t.Attr("server", "FANOUT_TEST_POSTGRES")
			t.Attr("color", "red")
			t.Attr("server", "FANOUT_TEST_MYSQL") // which this run is not about
			t.Run("a", func(t *testing.T) { t.Attr("server", "FANOUT_TEST_POSTGRES, replicated") })
			t.Run("b", func(t *testing.T) { t.Skip("not today") })
		}
		func TestBad(t *testing.T) { t.Attr("server", "Other 3.1"); t.Error("no") }`
	defer delete(files, "marked/marked_test.go")
	code, _, _ := goTest(t, "./marked")
	require.Equal(t, 1, code)

	document, result := filepath.Join(dir, "README.md"), filepath.Join(dir, "result.json")
	empty, err := testedwith.Splice([]byte("<!-- begin: make test-all writes this -->\n<!-- end -->\n"), "")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(document, empty, 0o600))
	require.NoError(t, writeTable(records, result, document))
	said, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, row := range []string{
		"| Other 3.1 | 0 | 1 | 0 | example.com/m/marked |",
		"| PostgreSQL 17.1 | 2 | 0 | 1 | example.com/m/marked |",
		"| PostgreSQL 17.1, replicated | 1 | 0 | 0 | example.com/m/marked |",
		"process of the tests | 1 | 0 | 0 | example.com/m/marked |",
	} {
		assert.Contains(t, string(said), row)
	}
	assert.NotContains(t, string(said), "MYSQL")
	require.FileExists(t, result)
	require.Error(t, writeTable(filepath.Join(dir, "none"), result, document))
}
