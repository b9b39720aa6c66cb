package kafka_test

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The records of a round, their keys and headers share few pieces of memory: a message has no allocation
// of its own.
func TestAllocationsOfARound(t *testing.T) { // not parallel, as other tests would be counted too
	testenv.NeedExactAllocations(t)
	broker := open(t, []string{"127.0.0.1:1"})
	for n, want := range map[int]float64{1: 9, 100: 13, 500: 23} {
		msgs := make([]brokers.Message, n)
		for i := range msgs {
			msgs[i] = numbered("bench::order", "key-"+strconv.Itoa(i%10), i)
			msgs[i].CorrelationID, msgs[i].Payload = uuid.NewString(), bytes.Repeat([]byte("x"), 500)
			msgs[i].Attributes = []brokers.Attribute{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
		}
		assert.InDelta(t, want, testenv.Allocations(20, func() {
			require.Equal(t, n, broker.Encode(t.Context(), msgs))
		}), 0, "%d messages", n)
	}
}
