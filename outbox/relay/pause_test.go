package relay

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func (r *rig) pause(p admin.Pause) {
	r.t.Helper()
	_, err := r.store.Pause(r.t.Context(), p)
	require.NoError(r.t, err)
}

func (r *rig) resume(broker string) {
	r.t.Helper()
	_, err := r.store.Resume(r.t.Context(), broker)
	require.NoError(r.t, err)
}

// A pause stops the delivery in the middle of a batch, gives back what is claimed, and ends where
// it began.
func TestProcessorPause(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { time.Sleep(100 * time.Millisecond); return nil }}
		r := newRig(t, path, broker, outbox.Policy{})
		r.fill(500, keyed("m", 7))
		r.start()
		r.until(time.Minute, func() bool { return len(broker.delivered("")) >= 20 })
		r.pause(admin.Pause{Broker: "b"})
		r.until(time.Minute, func() bool { return r.proc.Stats().Paused })
		time.Sleep(15 * time.Second) // the call that was in progress
		sent := len(broker.delivered(""))
		assert.Less(t, sent, 300)
		time.Sleep(30 * time.Second)
		assert.Len(t, broker.delivered(""), sent, "nothing goes out")
		assert.Equal(t, 500-sent, r.count("status = 'pending' AND attempts = 0"))
		assert.Equal(t, BreakerClosed, r.proc.Stats().Breaker, "the broker is not ill")
		r.resume("b")
		r.drained(5 * time.Minute)
		r.stop()
		assert.False(t, r.proc.Stats().Paused)
		assert.Len(t, broker.delivered(""), 500, "once each")
	})
}

// A process that starts while the broker is paused sends nothing, however long it takes to learn of
// the pause, and ends when it is told to.
func TestProcessorStartsPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker, store := &fake{}, &slow{looks: time.Second}
		r := newRig(t, path, broker, outbox.Policy{}, store.over)
		r.pause(admin.Pause{Broker: "b"})
		r.insert(row{name: "1"})
		r.start()
		time.Sleep(time.Minute)
		assert.Equal(t, "pending 0", r.status("1"))
		r.stop()
		assert.Empty(t, broker.delivered(""))
	})
}

// pausesTold is a store that counts who asks for the pauses, and may be unable to tell.
type pausesTold struct {
	driver.Delivery

	asked atomic.Int64
	err   error
}

func (s *pausesTold) Pauses(ctx context.Context) ([]admin.Pause, error) {
	s.asked.Add(1)
	pauses, err := s.Delivery.Pauses(ctx)
	return pauses, errors.Join(err, s.err)
}

// The log says who has paused a broker, why and since when. The pauses are read when that changes,
// and at no other look.
func TestProcessorSaysWhoPaused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"told":    {want: `by=ada reason="a drill" since=%s`},
		"refused": {err: errors.New("no right to read pauses"), want: `error="no right to read pauses"`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				store := &pausesTold{err: c.err}
				r := start(t, path, &fake{}, outbox.Policy{}, func(c *ProcessorConfig) { store.Delivery, c.Store = c.Store, store })
				time.Sleep(time.Minute)
				assert.Zero(t, store.asked.Load(), "nothing is paused")
				r.pause(admin.Pause{Broker: "a", By: "another"})
				r.pause(admin.Pause{Broker: "b", By: "ada", Reason: "a drill"})
				listed, err := r.store.Pauses(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Minute)
				assert.True(t, r.proc.Stats().Paused)
				assert.EqualValues(t, 1, store.asked.Load())
				r.resume("b")
				r.until(time.Minute, func() bool { return !r.proc.Stats().Paused })
				assert.EqualValues(t, 1, store.asked.Load())
				paused := r.log.with("broker paused")
				require.Len(t, paused, 1)
				want := strings.ReplaceAll(c.want, "%s", listed[1].Since.Format("2006-01-02T15:04:05.000Z07:00"))
				assert.Regexp(t, `msg="broker paused" database=test broker=b `+regexp.QuoteMeta(want)+`\n`, paused[0])
				assert.Equal(t, 1, r.log.count("broker resumed"))
			})
		})
	}
}

// The rate is kept, by all workers together, and evenly: a claim takes no more than can go out.
func TestProcessorRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.5, 20, 3000} {
		t.Run(fmt.Sprintf("%g", rate), func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				var times []time.Time
				var most int
				var r *rig
				lock := make(chan struct{}, 1)
				broker := &fake{publish: func(context.Context, brokers.Message) error {
					lock <- struct{}{}
					defer func() { <-lock }()
					times = append(times, time.Now())
					if len(times)%7 == 1 {
						most = max(most, r.count("status = 'processing'"))
					}
					return nil
				}}
				r = newRig(t, path, broker, outbox.Policy{Rate: rate, PollMin: time.Second})
				n := int(min(rate*10, 400)) + 1
				r.fill(n, loose("m"))
				r.start()
				r.drained(5 * time.Minute)
				r.stop()
				burst := max(1, min(rate/10, 100))
				took := times[len(times)-1].Sub(times[0]).Seconds()
				assert.GreaterOrEqual(t, took*rate, float64(n)-1-burst, "no faster")
				assert.LessOrEqual(t, took*rate, float64(n)*1.2+burst+rate, "not much slower") // a poll or two
				assert.LessOrEqual(t, float64(most), 2*burst, "two workers")
			})
		})
	}
}
