package relay

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// inTurn is a broker that sends the messages of a key in turn, each of which takes a while.
type inTurn struct {
	*fake

	each time.Duration
}

func (b inTurn) Capabilities() brokers.Capabilities {
	c := b.fake.Capabilities()
	c.KeysInTurn = true
	return c
}

func (b inTurn) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	longest, rows := 1, map[string]int{}
	for _, m := range messages {
		if rows[m.OrderingKey]++; m.OrderingKey != "" {
			longest = max(longest, rows[m.OrderingKey])
		}
	}
	time.Sleep(time.Duration(longest) * b.each)
	return b.fake.Publish(ctx, messages)
}

// Thousands of messages of one key, which are sent one by one, hold up no other key.
func TestHotKey(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"hot"}, {"hot", "warm"}} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				const each = 20 * time.Millisecond
				var mu sync.Mutex
				last, began := map[string]time.Time{}, time.Now()
				broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
					mu.Lock()
					defer mu.Unlock()
					last[strings.TrimRight(m.OrderingKey, "-0123456789")] = time.Now()
					return nil
				}}
				r := newRig(t, path, inTurn{broker, each}, outbox.Policy{PollMin: time.Second, PollMax: time.Second, Workers: 1})
				for _, key := range keys {
					r.fill(2000, func(i int) row { return row{key: key, name: fmt.Sprint(key, i)} })
				}
				r.start()
				time.Sleep(3 * time.Second)
				began = time.Now()
				r.fill(100, func(i int) row { return row{key: fmt.Sprint("other-", i), name: fmt.Sprint("other", i)} })
				time.Sleep(3 * time.Minute * time.Duration(len(keys)))
				require.Equal(t, int64(2000*len(keys)+100), broker.calls.Load())
				mu.Lock()
				defer mu.Unlock()
				assert.Less(t, last["other"].Sub(began), 2*time.Second)
				assert.Less(t, last["hot"].Sub(began), 2000*each*5/2, "it gets its share")
			})
		})
	}
}
