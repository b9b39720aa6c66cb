package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

// An adapter sends nothing of a key while an earlier call for it hangs. Those messages stand at the
// head of every claim; they must not be all that tries out the broker, or nothing else would ever
// pass.
func TestProcessorOneKeyThatIsNotSentHoldsBackItselfOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var hangs atomic.Bool
		hangs.Store(true)
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if hangs.Load() && m.OrderingKey == "k" {
				return brokers.NotSentBecause(errors.New("an earlier call for its key hangs"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{PollMin: time.Second, PollMax: 5 * time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 30 {
			r.insert("k", fmt.Sprintf("k%d", i))
		}
		r.start()
		for i := range 5 { // traffic goes on
			time.Sleep(time.Minute)
			r.insert(fmt.Sprintf("other%d", i%3), strconv.Itoa(i))
		}
		r.until(time.Minute, func() bool { return r.open() == "30" })
		assert.Equal(t, "30", r.query("SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL AND attempts = 0"))
		hangs.Store(false)
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		var ofKey []string
		for _, id := range broker.delivered() {
			if id[0] == 'k' {
				ofKey = append(ofKey, id)
			}
		}
		want := make([]string, 30)
		for i := range want {
			want[i] = fmt.Sprintf("k%d", i)
		}
		assert.Equal(t, want, ofKey)
	})
}

// What is not sent takes nothing from the rate: the messages of a destination that is out slow down
// no others.
func TestProcessorRateIsForWhatIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.Destination == "missing" {
				return brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{Rate: 1, PollMin: time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 100 {
			r.insert("", strconv.Itoa(i))
		}
		_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET stream = 'missing' WHERE id <= 80")
		require.NoError(t, err)
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "80" })
		r.stop()
	})
}
