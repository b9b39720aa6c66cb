package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
)

// nilError is an error whose nil pointer panics where it is read.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// A decoder that ends its goroutine, does not return, or returns a nil pointer as an error costs its
// message alone: other messages are handled, the consumer stops, and the message is forwarded as soon as
// its decoder has answered.
func TestDecoderMisbehaves(t *testing.T) {
	t.Parallel()
	for name, misbehave := range map[string]func(released <-chan struct{}) error{
		"Goexit": func(<-chan struct{}) error { runtime.Goexit(); return nil },
		"Blocks": func(released <-chan struct{}) error { <-released; return errors.New("no such schema") },
		"NilPointer": func(<-chan struct{}) error {
			var failed *nilError
			return failed
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTopic(t, startFake(t))
			released := make(chan struct{})
			var handled atomic.Int64
			begun := func() (c *Consumer, stop func() error) {
				c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
					handled.Add(1)
					return inbox.Handled, nil
				}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always(s.dead), Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
					if string(raw.Payload) == "bad" {
						return nil, misbehave(released)
					}
					return nil, nil //nolint:nilnil // it is left to the consumer
				}}}))
				require.NoError(t, err)
				return c, begin(t, c)
			}
			s.produce(t, &kgo.Record{Value: []byte("bad")}, &kgo.Record{Partition: 1, Value: message("", "2").Payload})
			_, stop := begun()
			eventually(t, func() bool { return handled.Load() == 1 }, "the other partition is handled")
			require.NoError(t, stop())
			close(released)
			c, stop := begun()
			eventually(t, func() bool { return c.Stats().Forwarded == 1 || len(s.letters(t)) == 1 }, "it is forwarded")
			require.NoError(t, stop())
		})
	}
}

// A decoder that takes longer for what is polled than the cluster waits for a member costs that member
// nothing: partitions move in time, and nothing that is done comes again.
func TestSlowDecoderDelaysNoRebalance(t *testing.T) {
	t.Parallel()
	const messages = 300
	s := newTopic(t, startFake(t))
	var records []*kgo.Record
	for n := range messages {
		records = append(records, &kgo.Record{Key: fmt.Append(nil, n%20), Value: fmt.Append(nil, n)})
	}
	s.produce(t, records...)
	var (
		asked atomic.Int64
		mu    sync.Mutex
		times = map[string]int{}
	)
	handler := inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		times[m.ID]++
		return inbox.Handled, nil
	})
	start := func() (stop func() error) {
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{
			Client: []kgo.Opt{kgo.RebalanceTimeout(time.Second)},
			ConsumerConfig: inbox.ConsumerConfig{Workers: 2, Decoder: func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
				asked.Add(1)
				time.Sleep(20 * time.Millisecond)
				return &envelope.CloudEvent{ID: string(raw.Payload), Type: "T"}, nil
			}},
		}))
		require.NoError(t, err)
		return begin(t, c)
	}
	first := start()
	eventually(t, func() bool { return asked.Load() > 5 }, "the first member reads")
	second := start()
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(times) == messages
	}, "all are handled")
	require.NoError(t, first())
	require.NoError(t, second())
	for n := range messages {
		assert.Equal(t, 1, times[strconv.Itoa(n)], "message %d", n)
	}
}
