package kafkaconsumer

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

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
