// Package testenv gives tests what they need from outside: databases, key prefixes, seeds, documents.
//
// Variables name the servers; package testservers finds or starts them. Tests that miss one are skipped,
// with a reason that says how to run them. With FANOUT_TEST_REQUIRE=1 they fail, so that a run that is
// meant to be complete cannot quietly be less.
package testenv

import (
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	longVariable = "FANOUT_TEST_LONG" // is 1 in make test-all
	seedVariable = "FANOUT_TEST_SEED" // replays a run
)

// Long reports whether a test may take minutes, as in make test-all: with more rows, more faults, and on
// every database.
func Long() bool { return os.Getenv(longVariable) == "1" }

// NeedSeconds skips a test under go test -short, as in make test, that keeps a processor busy for seconds.
func NeedSeconds(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds: .ci/run runs it")
	}
}

// NeedLong skips a test that costs more than it tells of most changes.
func NeedLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skipf("takes long: make test-all runs it (%s=1)", longVariable)
	}
}

// RaceDetector reports whether this program runs with the race detector.
func RaceDetector() bool { return raceDetector }

// OneStepAtATime skips a test under the race detector that starts no goroutines of ours.
func OneStepAtATime(t testing.TB) {
	t.Helper()
	if raceDetector && !Long() {
		t.Skipf("one step at a time: nothing for the race detector, unless %s=1", longVariable)
	}
}

// OnEach runs a test that is about no particular database on one that the seed chooses, or on the next if
// the test skips itself there: for lack of the server, say. Where [Long] holds, it runs on all of them.
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

// Turn is a number below n that the test's name and FANOUT_TEST_SEED choose.
func Turn(t testing.TB, n int) int {
	t.Helper()
	return int(crc32.ChecksumIEEE([]byte(os.Getenv(seedVariable)+" "+t.Name())) % uint32(n)) //nolint:gosec // it is below n
}

// NeedExactAllocations skips a test where the compiler adds allocations of its own.
func NeedExactAllocations(t testing.TB) {
	t.Helper()
	if raceDetector || testing.CoverMode() != "" {
		t.Skip("allocations are counted without the race detector and without coverage")
	}
}

// Allocations is the least of several averages of what f allocates, each over so many runs: pools fill
// up for a while and lose what they have to the collector, and other goroutines allocate, too.
func Allocations(runs int, f func()) float64 {
	least := math.Inf(1)
	for range 10 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// Seed returns the seed for this test's random choices: the one in FANOUT_TEST_SEED, else a new one. The
// output of a failed test says how to replay it.
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

// Page returns a page of the folder docs.
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

// PageCode returns the blocks of code in a page of the folder docs, with their lines of ```.
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
