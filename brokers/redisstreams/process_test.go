package redisstreams_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
)

// A payload that the server refuses to read costs a connection, mostly before the refusal can be
// read: nobody is blamed.
func TestServerTakesLessThanTheBrokerKnows(t *testing.T) {
	s := startServer(t, "--proto-max-bulk-len", "1mb")
	b := open(t, s.url())
	msgs := many("s", 30, 5)
	msgs[12].Payload = make([]byte, 1<<20+1)
	for range 2 { // by the script, and by a transaction
		for i, result := range b.Publish(t.Context(), msgs) {
			class, _ := brokers.Classify(result.Err)
			if i != 12 {
				require.Contains(t, []brokers.Class{"", brokers.ClassUnavailable, brokers.ClassNotSent}, class, "%d: %v", i, result.Err)
			}
		}
		redisstreams.KnowTransactions(b)
	}
	// With the limit known, the broker says so at once.
	b = open(t, s.url(), redisstreams.Settings{MaxMessageBytes: 1 << 20})
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"": 26, "permanent": 1, "not_sent": 3}, verdicts(results))
}

// A hung server ends a publish at its deadline, and order survives that what was sent arrives after
// all.
func TestHungServer(t *testing.T) {
	s := startServer(t)
	b := open(t, s.url()+"?read_timeout=1h") // only the deadline ends it
	msgs := many("s", 300, 3)
	require.Equal(t, map[string]int{"": 300}, verdicts(b.Publish(t.Context(), msgs)))

	thaw := s.freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	assert.Equal(t, map[string]int{"unavailable broker": 100, "not_sent": 200}, verdicts(b.Publish(ctx, msgs)))
	thaw()
	assert.Equal(t, map[string]int{"": 300}, verdicts(b.Publish(t.Context(), msgs)))
}
