package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// A worker never has more bytes claimed than its policy allows, unless it is one message; and all
// of them arrive, in order.
func TestProcessorBatchBytes(t *testing.T) {
	t.Parallel()
	for _, unordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("unordered=%t", unordered), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				const most = 250
				var r *rig
				hands := map[string]int{}
				broker := &fake{publish: func(context.Context, brokers.Message) error {
					hands[r.query("SELECT count(*) FROM outbox_messages WHERE status = 'processing'")]++
					assert.Equal(t, "1", r.query(`SELECT count(*) = 1 OR sum(length(payload)) <= ? FROM outbox_messages WHERE status = 'processing'`, most))
					return nil
				}}
				r = newRig(t, path, broker, outbox.Policy{Workers: 1, BatchSize: 10, BatchBytes: most, Unordered: unordered})
				t.Cleanup(func() { _ = r.db.Close() })
				want := make([]string, 30)
				for i := range want {
					want[i] = fmt.Sprintf("%02d%s", i, strings.Repeat("x", 98)) // two fit, three do not
					if i%10 == 7 {
						want[i] += strings.Repeat("y", most)
					}
					r.insert("k", want[i])
				}
				r.start()
				r.until(time.Minute, func() bool { return r.open() == "0" })
				r.stop()
				assert.Equal(t, want, broker.delivered())
				assert.Greater(t, hands["1"], 2, "the large ones come alone")
				assert.Greater(t, hands["2"], 10)
				assert.Len(t, hands, 2, "%v", hands)
			})
		})
	}
}
