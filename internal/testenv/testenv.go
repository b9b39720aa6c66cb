// Package testenv gives tests what they need from outside: databases, key prefixes, seeds, documents.
//
// Variables name the servers; package testservers finds or starts them. Without them, as in a plain go
// test, the tests that need one are skipped, with a reason that says how to run them.
// FANOUT_TEST_REQUIRE=1 turns that into a failure, so that a run that is meant to be complete cannot
// quietly be less.
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
)

// longVariable is set to 1 by make test-all.
const longVariable = "FANOUT_TEST_LONG"

// Long reports whether a test may take minutes, as in make test-all: with more rows, more faults,
// more time, on every database. Otherwise each test takes seconds, and still asserts its subject.
func Long() bool { return os.Getenv(longVariable) == "1" }

// NeedLong skips a test of minutes that has no short version, or that tells less of most changes than
// it costs.
func NeedLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skipf("takes long: make test-all runs it (%s=1)", longVariable)
	}
}

// RaceDetector reports whether this program runs with the race detector, under which SQLite in Go, say,
// is ten times as slow.
func RaceDetector() bool { return raceDetector }

// OneStepAtATime skips a test under the race detector that starts no goroutines of ours: there is
// nothing to find, and it takes several times as long. make test-all runs it.
func OneStepAtATime(t testing.TB) {
	t.Helper()
	if raceDetector && !Long() {
		t.Skipf("one step at a time: nothing for the race detector, unless %s=1", longVariable)
	}
}

// OnEach runs a test that is about no particular database on one of several, which the seed chooses, or
// on the next one if the server of that is missing or the test does not apply to it. Only where [Long]
// holds, it runs on all of them, side by side.
func OnEach[D any](t *testing.T, databases []D, name func(D) string, test func(*testing.T, D)) {
	t.Helper()
	if Long() {
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
			t.Cleanup(func() {
				if ran = !t.Skipped(); !ran && i+1 < len(databases) {
					t.Attr("passed-over", "") // for the report, which does not count it as skipped
				}
			})
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

// NeedExactAllocations skips a test where the compiler adds allocations of its own.
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

// Page returns a page of the folder docs, for tests of its text.
func Page(t testing.TB, name string) string {
	t.Helper()
	for dir := "."; len(dir) < len("../../../../../../.."); dir = filepath.Join("..", dir) {
		if text, err := os.ReadFile(filepath.Join(dir, "docs", name)); err == nil { //nolint:gosec // the test names it
			return string(text)
		}
	}
	t.Fatalf("no page %s in docs, here or above", name)
	return ""
}

// PageCode returns the blocks between lines of ``` in a page of the folder docs, with these lines, for
// tests that run them.
func PageCode(t testing.TB, name string) string {
	t.Helper()
	var code strings.Builder
	inside := false
	for line := range strings.Lines(Page(t, name)) {
		fence := strings.HasPrefix(line, "```")
		if inside || fence {
			code.WriteString(line)
		}
		inside = inside != fence
	}
	return code.String()
}
