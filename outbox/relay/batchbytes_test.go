package relay

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// A batch that its bytes have cut is full: that it has few rows is no reason to look further, nor
// to defer anything.
func TestCutBatchIsFull(t *testing.T) {
	t.Parallel()
	w := &worker{p: &Processor{policy: outbox.Policy{BatchSize: 10}.WithDefaults()}, window: 40}
	claim := &driver.Claim{Broker: "b", Limit: 10, Window: 40}
	few := make([]driver.Message, 1)
	for _, claim.Unordered = range []bool{false, true} {
		// There is no store: a call to it would panic.
		assert.False(t, w.deferRows(t.Context(), &driver.Batch{Messages: few, Seen: 40, Waiting: 5000, Cut: true}, claim))
	}
	assert.False(t, w.widen(&driver.Batch{Messages: few, Seen: 40, Cut: true}, claim))
	assert.Equal(t, 20, w.window)
	w.widen(&driver.Batch{Messages: few, Seen: 20, Cut: true}, &driver.Claim{Limit: 10, Window: 20})
	w.widen(&driver.Batch{Messages: few, Seen: 10, Cut: true}, &driver.Claim{Limit: 10, Window: 10})
	assert.Equal(t, 10, w.window, "no less than a batch")
	w.widen(&driver.Batch{Messages: few, Seen: 10}, &driver.Claim{Limit: 10, Window: 10})
	assert.Equal(t, 20, w.window, "held rows fill the window")
}

func TestBatchBytes(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 16<<20, outbox.Policy{}.WithDefaults().BatchBytes)
	assert.ErrorContains(t, outbox.Policy{BatchBytes: -1}.Validate(), "batch_bytes is -1: use a positive number of bytes")
	assert.NoError(t, outbox.Policy{BatchBytes: 1}.Validate())
}
