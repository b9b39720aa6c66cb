package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// Outages make calls smaller, and what passes makes them larger again, each by half.
func TestSizing(t *testing.T) {
	t.Parallel()
	c := sizing{quick: time.Second}
	var sizes []int
	for range 9 {
		sizes = append(sizes, c.size())
		c.learn(false, c.size(), 0)
	}
	assert.Equal(t, []int{100, 50, 25, 12, 6, 3, 1, 1, 1}, sizes)
	for range 9 {
		c.learn(true, c.size(), time.Hour)
	}
	assert.Equal(t, 100, c.size(), "a broker without a preference gets no more")
}

// Calls that come back quickly grow up to what the broker likes, slow ones shrink to what they
// began with, and an outage ends it.
func TestSizingGrows(t *testing.T) {
	t.Parallel()
	c := sizing{most: 500, quick: time.Second}
	quick, slow, neither := time.Second-1, 2*time.Second, 2*time.Second-1
	for i, step := range []struct {
		available bool
		n         int
		took      time.Duration
		want      int
	}{
		{true, 99, quick, 100}, // not full: it says nothing about larger ones
		{true, 100, neither, 100},
		{true, 100, slow, 100},
		{true, 100, quick, 200},
		{true, 100, quick, 200}, // of another worker, begun before
		{true, 200, quick, 400},
		{true, 400, quick, 500},
		{true, 500, quick, 500},
		{true, 500, neither, 500},
		{true, 500, slow, 400},
		{true, 400, slow, 200},
		{true, 200, quick, 400},
		{false, 400, quick, 50},
		{true, 50, slow, 100},
	} {
		c.learn(step.available, step.n, step.took)
		assert.Equal(t, step.want, c.size(), "step %d", i)
	}
	small := sizing{most: 30, quick: time.Second}
	small.learn(true, 100, 0)
	assert.Equal(t, 100, small.size())
}

// likesMany is a broker that takes large calls.
type likesMany struct{ brokers.Broker }

func (likesMany) Capabilities() brokers.Capabilities { return brokers.Capabilities{MaxBatch: 500} }

// A call grows only where one of twice as many messages would stay well below the publish timeout,
// and be no hindrance to the lease.
func TestSizingKeepsWithinTimeouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lease, timeout, quick time.Duration }{
		{5 * time.Minute, 30 * time.Second, time.Second},
		{5 * time.Minute, time.Second, 250 * time.Millisecond},
		{2 * time.Second, time.Second, 100 * time.Millisecond},
	} {
		calls := newSizing(likesMany{}, &outbox.Policy{Lease: c.lease, PublishTimeout: c.timeout})
		calls.learn(true, 100, c.quick)
		assert.Equal(t, 100, calls.size(), "lease %s, publish timeout %s", c.lease, c.timeout)
		calls.learn(true, 100, c.quick-1)
		assert.Equal(t, 200, calls.size(), "lease %s, publish timeout %s", c.lease, c.timeout)
	}
}
