package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// A decoder that does not return keeps neither what receives nor, for long, other keys. Its message waits
// for the answer, is not asked about twice meanwhile, and is read when there is one.
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
		for n := range most {
			s.Take(arrived(&c, fmt.Sprint(n), fmt.Sprint(n), fmt.Sprint(n), nil), &broker)
		}
		s.Take(arrived(&c, "a", "event", event("T", "1"), nil), &broker)
		time.Sleep(20 * time.Second) // by the clock of the test: as long as 500 of them keep four workers
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

// Messages whose key the decoder alone knows are handled in the order of that key, one at a time, however
// long it takes to read each; also when many others block it.
func TestDecoderKnowsTheKey(t *testing.T) {
	t.Parallel()
	for _, blocked := range []int{0, 200} {
		synctest.Test(t, func(t *testing.T) {
			const most = 40
			var running atomic.Int64
			var mu sync.Mutex
			order := map[string][]string{}
			set := settings(func(_ context.Context, m *inbox.Message) error {
				if m.OrderingKey == "a" {
					assert.Equal(t, int64(1), running.Add(1), "one at a time")
					defer running.Add(-1)
				}
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				order[m.OrderingKey] = append(order[m.OrderingKey], m.ID)
				return nil
			})
			hang := make(chan struct{})
			c := inbox.ConsumerConfig{Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
				id := string(raw.Payload)
				n, unread := strconv.Atoi(id)
				if unread != nil {
					<-hang
					return &envelope.CloudEvent{ID: id, Type: "T"}, nil //nolint:nilerr // the one that is no number hangs
				}
				time.Sleep(time.Duration(n*7%13) * time.Millisecond)
				return &envelope.CloudEvent{ID: id, Type: "T", PartitionKey: []string{"a", "b"}[n%2]}, nil
			}}
			require.NoError(t, Complete("x", &c, set.Runner.Handler, "billing", "orders").Err())
			set.Decoder = c.Decoder
			s := New(t.Context(), &set)
			var broker told
			for n := range blocked {
				s.Take(arrived(&c, "", fmt.Sprint("hang", n), fmt.Sprint("hang", n), nil), &broker)
			}
			want := map[string][]string{}
			for n := range most {
				key, id := []string{"a", "b"}[n%2], fmt.Sprint(n)
				want[key] = append(want[key], id)
				s.Take(arrived(&c, "", id, id, nil), &broker)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			mu.Lock()
			assert.Equal(t, want, order)
			mu.Unlock()
			close(hang)
			time.Sleep(time.Hour)
			s.Stop(func() {})
			assert.Equal(t, []int64{int64(most + blocked), 0}, []int64{broker.acks.Load(), broker.nacks.Load()})
			assert.Empty(t, s.queues.byKey)
		})
	}
}

// What is behind a message of an unknown key whose decoder is out does not wait for it. When that is read, it
// waits for those of its key.
func TestDecoderIsOutForAnUnknownKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out atomic.Bool
		out.Store(true)
		let := make(chan struct{})
		var mu sync.Mutex
		var order []string
		note := func(m *inbox.Message) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, m.ID)
		}
		set := settings(func(_ context.Context, m *inbox.Message) error {
			note(m)
			if m.ID == "2" {
				<-let
			}
			return nil
		})
		set.Runner.Timeout = 24 * time.Hour
		c := inbox.ConsumerConfig{Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
			if string(raw.Payload) == "1" && out.Load() {
				return nil, inbox.Unavailable(errors.New("registry out"))
			}
			return &envelope.CloudEvent{ID: string(raw.Payload), Type: "T", PartitionKey: "a"}, nil
		}}
		require.NoError(t, Complete("x", &c, set.Runner.Handler, "billing", "orders").Err())
		set.Decoder = c.Decoder
		s := New(t.Context(), &set)
		var broker told
		for _, id := range []string{"1", "2", "3"} {
			s.Take(arrived(&c, "", id, id, nil), &broker)
		}
		synctest.Wait()
		out.Store(false)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []string{"2"}, order)
		close(let)
		synctest.Wait()
		assert.Equal(t, []string{"2", "3", "1"}, order)
		s.Stop(func() {})
		assert.Equal(t, int64(3), broker.acks.Load())
	})
}
