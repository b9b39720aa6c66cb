//go:build race

package gormplugin

const raceDetector = true
