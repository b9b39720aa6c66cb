//go:build !race

package gormplugin

const raceDetector = false
