package gormplugin

import "testing"

// NeedExactAllocations skips a test where the compiler adds allocations of its own.
func NeedExactAllocations(t *testing.T) {
	t.Helper()
	if raceDetector || testing.CoverMode() != "" {
		t.Skip("allocations are counted without the race detector and without coverage")
	}
}

// Listeners is the number of functions that a plugin keeps for its commits.
func (p *Plugin) Listeners() int {
	return len(p.listening())
}
