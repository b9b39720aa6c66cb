package relay

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// A key passes its scheduled message, which arrives when its time has come, whoever else is served then.
func TestScheduled(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		times := map[string]time.Duration{}
		began := time.Now()
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			times[m.ID] = time.Since(began)
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{PollMin: time.Second, PollMax: time.Second})
		r.insert(row{key: "order", name: "payment due", in: time.Hour}, row{key: "order", name: "shipped"})
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"shipped"}, broker.delivered(""))
		r.insert(row{key: "order", name: "paid"})
		time.Sleep(2 * time.Hour)
		assert.Equal(t, []string{"shipped", "paid", "payment due"}, broker.delivered(""))
		assert.InDelta(t, time.Hour, times["payment due"], float64(5*time.Second))
	})
}

// Thousands of messages that are due at once share the batches with others.
func TestManyDueAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{}
		r := newRig(t, path, broker, outbox.Policy{PollMin: time.Second, PollMax: time.Second, Workers: 1})
		r.fill(3000, func(i int) row { return row{key: fmt.Sprint("later-", i), name: "later", in: time.Minute} })
		time.Sleep(time.Minute)
		r.fill(100, func(i int) row { return row{key: fmt.Sprint("now-", i), name: "now"} })
		r.start()
		time.Sleep(time.Minute)
		seen := broker.delivered("")
		require.Len(t, seen, 3100)
		slices.Reverse(seen)
		assert.Less(t, len(seen)-slices.Index(seen, "now"), 1000, "the last of the others")
	})
}
