// Package testenv gives tests what they need from outside: databases, key prefixes, seeds.
//
// The servers are those that make test, through package testservers, finds or starts. Without them,
// say under a plain go test, the tests that need one are skipped, with a message that says how to
// run them; FANOUT_TEST_REQUIRE=1 turns that into a failure, so that a run that is meant to be
// complete cannot quietly be less.
package testenv

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// requireVariable is set to 1 where a missing server is a failure.
const requireVariable = "FANOUT_TEST_REQUIRE"

// Uses marks a test, and those below it, as run on a server, for the table of what Fanout is tested
// with: by the variable of package testservers that names the server, or by its name and version.
// Behind a comma there may be what is special about it, as in "NATS 2.12.3, three servers".
func Uses(t testing.TB, server string) {
	t.Helper()
	t.Attr("server", server)
}

// need returns the value of a variable that make test sets, or ends the test.
func need(t testing.TB, variable string) string {
	t.Helper()
	if variable != testservers.ToxiproxyVariable { // which is a tool
		Uses(t, variable)
	}
	if value := os.Getenv(variable); value != "" {
		return value
	}
	if os.Getenv(requireVariable) == "1" {
		t.Fatalf("%s is not set, and %s=1 forbids skipping: run make test, which finds or starts the servers",
			variable, requireVariable)
	}
	t.Skipf("%s is not set: run make test, which finds or starts the servers", variable)
	return ""
}

// longVariable is set to 1 by make test-all.
const longVariable = "FANOUT_TEST_LONG"

// Long reports whether a test may take minutes, as in make test-all: with more rows, more faults,
// more time. Without, each test takes seconds, and still asserts what it is about.
func Long() bool { return os.Getenv(longVariable) == "1" }

// NeedLong skips a test of minutes that has no short version.
func NeedLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skipf("takes minutes: make test-all runs it (%s=1)", longVariable)
	}
}

// spreadVariable is set to 1 by make test.
const spreadVariable = "FANOUT_TEST_SPREAD"

// RaceDetector reports whether the race detector looks at this program: what it looks into, such as
// SQLite in Go, is ten times as slow.
func RaceDetector() bool { return raceDetector }

// Spread reports whether a case that is not about one database runs on one only, and the cases
// together on all of them. Otherwise, as in make test-all, each case runs on every database.
func Spread() bool { return os.Getenv(spreadVariable) == "1" }

// NeedAll skips a test in make test and make race that costs more than it tells of most changes, such
// as one that starts servers again and again: make test-all runs it, and so does a plain go test.
func NeedAll(t testing.TB) {
	t.Helper()
	if Spread() {
		t.Skip("make test-all runs it")
	}
}

// OneStepAtATime skips a test in make race that starts no goroutines of ours: the race detector has nothing
// to find there, and takes several times as long. make test runs it without, make test-all with it.
func OneStepAtATime(t testing.TB) {
	t.Helper()
	if raceDetector && Spread() {
		t.Skip("one step at a time: make test runs it, make test-all with the race detector, too")
	}
}

// OnEach runs a test on each of several databases, side by side; where [Spread] holds, on the one
// whose turn it is, or the next one where the test skips itself: since it is not about the first, or
// that one cannot be had.
func OnEach[D any](t *testing.T, databases []D, name func(D) string, test func(*testing.T, D)) {
	t.Helper()
	if !Spread() {
		for _, database := range databases {
			t.Run(name(database), func(t *testing.T) {
				t.Parallel()
				test(t, database)
			})
		}
		return
	}
	first := Turn(t, len(databases))
	for i, ran := 0, false; i < len(databases) && !ran; i++ {
		database := databases[(first+i)%len(databases)]
		t.Run(name(database), func(t *testing.T) {
			t.Cleanup(func() { ran = !t.Skipped() })
			test(t, database)
		})
	}
}

// Turn is a number below n for this test: always the same with its name and FANOUT_TEST_SEED, so
// that another seed pairs cases and databases otherwise.
func Turn(t testing.TB, n int) int {
	t.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(os.Getenv(seedVariable) + " " + t.Name()))
	return int(h.Sum64() >> 32 % uint64(n)) //nolint:gosec // it is below n
}

// treeVariable is a sum over all files of the repository.
const treeVariable = "FANOUT_TEST_TREE"

// UsesAllFiles tells go test that the results of this package depend on more files than it sees, as
// where a test builds a program of another module: from now on they come from its cache only while
// no file has changed. Without the sum, in a plain go test, -count=1 is needed.
func UsesAllFiles() { _ = os.Getenv(treeVariable) }

// NeedExactAllocations skips a test where the compiler adds allocations of its own. make
// allocations runs those tests.
func NeedExactAllocations(t testing.TB) {
	t.Helper()
	if raceDetector || testing.CoverMode() != "" {
		t.Skip("allocations are counted without the race detector and without coverage")
	}
}

// Allocations is what f allocates: the least of several averages, each over so many runs, since pools
// fill up for a while and lose what they have to the collector, and other goroutines allocate, too.
func Allocations(runs int, f func()) float64 {
	least := math.Inf(1)
	for range 10 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// seedVariable replays a run.
const seedVariable = "FANOUT_TEST_SEED"

// Seed returns the seed for this test's random choices: the one in FANOUT_TEST_SEED, else a new
// one. It is logged together with how to replay it, so that the output of a failed test holds it.
func Seed(t testing.TB) int64 {
	t.Helper()
	seed := rand.Int64()
	if given := os.Getenv(seedVariable); given != "" {
		var err error
		if seed, err = strconv.ParseInt(given, 10, 64); err != nil {
			t.Fatalf("%s is not a whole number: %v", seedVariable, err)
		}
	}
	t.Logf("seed %d: replay with %s=%d", seed, seedVariable, seed)
	return seed
}

// Page returns a page of the folder docs, for tests of what its text says.
func Page(t testing.TB, name string) string {
	t.Helper()
	return document(t, "FANOUT_TEST_PAGE_", name)
}

// PageCode returns what a page of the folder docs prints between its lines of ```, with these lines,
// for tests that run it. A test that reads no more than this need not run again for a page's prose.
func PageCode(t testing.TB, name string) string {
	t.Helper()
	var code strings.Builder
	inside := false
	for line := range strings.Lines(document(t, "FANOUT_TEST_CODE_", name)) {
		fence := strings.HasPrefix(line, "```")
		if inside || fence {
			code.WriteString(line)
		}
		inside = inside != fence
	}
	return code.String()
}

// document reads a page. go test knows a cached result by the paths and contents of the files that it
// has read in the module, and not at all of others; so make test has each page, and the code of each,
// read from a copy elsewhere, whose path tells what is in it and stands in a variable of its own.
func document(t testing.TB, prefix, name string) string {
	t.Helper()
	file := os.Getenv(prefix + strings.ReplaceAll(strings.TrimSuffix(name, ".md"), "-", "_"))
	for up := "docs"; file == ""; up = filepath.Join("..", up) {
		if _, err := os.Stat(filepath.Join(up, name)); err == nil {
			file = filepath.Join(up, name)
		} else if len(up) > len("../../../../../docs") {
			t.Fatalf("no page %s in docs, here or above", name)
		}
	}
	text, err := os.ReadFile(file) //nolint:gosec // the test names it
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
