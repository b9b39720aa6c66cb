//go:build race

package dedup

// raceDetector makes exploring twenty times as slow, and finds nothing in what runs one step at a
// time.
const raceDetector = true
