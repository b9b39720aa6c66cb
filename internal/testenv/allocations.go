package testenv

import "testing"

// NeedExactAllocations skips a test where the compiler adds allocations of its own. make
// allocations runs those tests.
func NeedExactAllocations(t testing.TB) {
	t.Helper()
	if raceDetector || testing.CoverMode() != "" {
		t.Skip("allocations are counted without the race detector and without coverage")
	}
}
