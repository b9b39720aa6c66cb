package testenv

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

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
