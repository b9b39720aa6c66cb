package watermill_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/gorm-fanout/fanout/brokers/brokertest/relaytest"
)

// A publisher that reports an outage in words of its own costs no message an attempt, however long it lasts.
// A message that it alone refuses is abandoned.
func TestRelay(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var calls atomic.Int64
	var poison atomic.Value
	poison.Store("")
	down.Store(true)
	b := open(t, &publisher{publish: func(_ string, m *message.Message) error {
		calls.Add(1)
		if down.Load() || m.UUID == poison.Load() {
			return errors.New("not connected")
		}
		return nil
	}})
	relaytest.Outlives(t, relaytest.Outage{
		Target: b, Says: "not connected", Lasts: func() bool { return calls.Load() > 100 }, Heal: func() { down.Store(false) },
	})
	relaytest.FindsPoison(t, b, func(id string) { poison.Store(id) })
}
