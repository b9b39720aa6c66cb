package memory

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/gorm-fanout/fanout/brokers"
)

// Messages returns what was published to a destination so far, in order. The caller may keep and
// change the slice.
func (b *Broker) Messages(destination string) []brokers.Message {
	messages, _ := b.read(destination, 0)
	return messages
}

// Wait returns the messages of a destination as soon as there are at least n of them. When ctx ends
// or the broker is closed before that, it returns what there is together with an error.
func (b *Broker) Wait(ctx context.Context, destination string, n int) ([]brokers.Message, error) {
	for {
		messages, next := b.read(destination, 0)
		if len(messages) >= n {
			return messages, nil
		}
		err := brokers.ErrClosed
		if !next.never {
			select {
			case <-next.changed:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		return messages, fmt.Errorf("memory: wait for %d messages on %q: %d came: %w", n, destination, len(messages), err)
	}
}

// Subscribe yields the messages of a destination, those already there first, and then each new one
// as it is published. The sequence ends with ctx, or when the broker is closed and nothing is left
// to read. Each subscription sees all messages; it holds no goroutine and needs no clean-up.
//
//	for message := range broker.Subscribe(ctx, "ordering::order") { ... }
func (b *Broker) Subscribe(ctx context.Context, destination string) iter.Seq[brokers.Message] {
	return func(yield func(brokers.Message) bool) {
		for after := 0; ; {
			messages, next := b.read(destination, after)
			for _, m := range messages {
				if ctx.Err() != nil || !yield(m) {
					return
				}
			}
			after = next.after
			if len(messages) > 0 {
				continue
			}
			if next.never {
				return
			}
			select {
			case <-next.changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// position is where a read ended.
type position struct {
	after   int             // the sequence of the last message read
	changed <-chan struct{} // closed by the next change
	never   bool            // the broker is closed: there will be no change
}

// read copies the messages of a destination that came after a sequence, all of them for 0.
func (b *Broker) read(destination string, after int) ([]brokers.Message, position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	topic := b.topics[destination]
	from, _ := slices.BinarySearchFunc(topic, after+1, func(k kept, sequence int) int { return k.sequence - sequence })
	messages := make([]brokers.Message, 0, len(topic)-from)
	for _, k := range topic[from:] {
		messages, after = append(messages, clone(k.message)), k.sequence
	}
	return messages, position{after: after, changed: b.changed, never: b.closed}
}
