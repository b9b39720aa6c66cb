// Package testenv gives tests what they need from outside: databases, key prefixes, seeds.
//
// The servers are those that make test, through package testservers, finds or starts. Without them,
// say under a plain go test, the tests that need one are skipped, with a message that says how to
// run them; FANOUT_TEST_REQUIRE=1 turns that into a failure, so that a run that is meant to be
// complete cannot quietly be less.
package testenv

import (
	"math/rand/v2"
	"os"
	"strconv"
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
