package consumer

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// A decoder that does not return keeps neither what receives nor other keys. Its message waits for the
// answer, is not asked about twice meanwhile, and is read when there is one.
func TestDecoderDoesNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var handled, times atomic.Int64
		set := settings(func(context.Context, *inbox.Message) error { handled.Add(1); return nil })
		released := make(chan struct{})
		const most = 500
		c := inbox.ConsumerConfig{Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
			if _, err := strconv.Atoi(string(raw.Payload)); err != nil {
				return nil, nil //nolint:nilerr,nilnil // it is left to the consumer
			}
			times.Add(1)
			<-released
			return &envelope.CloudEvent{ID: string(raw.Payload), Type: "T"}, nil
		}}
		require.NoError(t, Complete("x", &c, set.Runner.Handler, "billing", "orders").Err())
		set.Decoder = c.Decoder
		s := New(t.Context(), &set)
		var broker told
		began := time.Now()
		for n := range most {
			s.Take(arrived(&c, fmt.Sprint(n), fmt.Sprint(n), fmt.Sprint(n), nil), &broker)
		}
		assert.Less(t, time.Since(began), 10*time.Second, "by the clock of the test: as long as 500 of them keep it")
		s.Take(arrived(&c, "a", "event", event("T", "1"), nil), &broker)
		synctest.Wait()
		assert.Equal(t, int64(1), handled.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []int64{1, most}, []int64{handled.Load(), times.Load()})
		close(released)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []int64{most + 1, most}, []int64{handled.Load(), times.Load()})
		s.Stop(func() {})
	})
}

// What goes wrong in the goroutine of a decoder makes its message unreadable.
func TestDecoderEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	for want, decoder := range map[string]inbox.Decoder{
		"ended its goroutine": func(*inbox.RawMessage) (*envelope.CloudEvent, error) { runtime.Goexit(); return nil, nil }, //nolint:nilnil // it does not
		"panicked: no":        func(*inbox.RawMessage) (*envelope.CloudEvent, error) { panic("no") },
	} {
		_, err := bounded(decoder).Decode(&inbox.RawMessage{})
		require.ErrorContains(t, err, want)
		assert.False(t, inbox.IsUnavailable(err))
	}
	assert.Nil(t, bounded(nil))
}
