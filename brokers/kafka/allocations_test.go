package kafka_test

import (
	"bytes"
	"math"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// The records of a round, their keys and headers share few pieces of memory: a message has no allocation
// of its own.
func TestAllocationsOfARound(t *testing.T) { // not parallel, as other tests would be counted too
	if raceDetector() || testing.CoverMode() != "" {
		t.Skip("the race detector and coverage allocate, too")
	}
	broker := open(t, []string{"127.0.0.1:1"})
	for n, want := range map[int]float64{1: 9, 100: 13, 500: 23} {
		msgs := make([]brokers.Message, n)
		for i := range msgs {
			msgs[i] = numbered("bench::order", "key-"+strconv.Itoa(i%10), i)
			msgs[i].CorrelationID, msgs[i].Payload = uuid.NewString(), bytes.Repeat([]byte("x"), 500)
			msgs[i].Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
		}
		least := math.Inf(1) // pools fill up for a while, and lose what they have to the collector
		for range 10 {
			least = min(least, testing.AllocsPerRun(20, func() { require.Equal(t, n, broker.Encode(t.Context(), msgs)) }))
		}
		assert.InDelta(t, want, least, 0, "%d messages", n)
	}
}

// raceDetector reports whether the test was built with it.
func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
