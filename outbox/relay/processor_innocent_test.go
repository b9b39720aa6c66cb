package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// A message at which an outage was noticed waits a little longer than the next try, which so uses
// others; but once the broker is back it must not stay behind for as long again as the last pause
// was.
func TestProcessorOutageKeepsNoKeyBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var down atomic.Bool
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			if down.Load() {
				return brokers.Unreachable(brokers.ScopeBroker, errors.New("connection refused"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Workers: 1, PollMin: 100 * time.Millisecond, PollMax: 500 * time.Millisecond})
		for round := range 10 {
			down.Store(true)
			for i := range 20 {
				r.insert(fmt.Sprintf("k%d", i), fmt.Sprintf("%d of k%d", round, i))
			}
			time.Sleep(12 * time.Second)
			down.Store(false)
			before := len(broker.delivered())
			r.until(30*time.Second, func() bool { return len(broker.delivered()) > before })
			back := time.Now()
			r.until(time.Minute, func() bool { return r.open() == "0" })
			// One that had been charged would wait for most of a minute.
			assert.Less(t, time.Since(back), 20*time.Second, "round %d: from the first message to the last", round)
		}
		r.stop()
	})
}
