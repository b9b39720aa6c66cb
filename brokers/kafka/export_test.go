package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
)

// Encode makes the records of the first round of msgs, and says how many these are.
func (b *Broker) Encode(ctx context.Context, msgs []brokers.Message) int {
	p := &publication{Broker: b, msgs: msgs, topics: map[string]destination{}}
	p.Begin(msgs, nil)
	round, _ := p.round(ctx, 0)
	return len(round)
}

// WithoutCompression lets tests read what is sent.
func WithoutCompression(s Settings) Settings {
	s.client = append(s.client, kgo.ProducerBatchCompression(kgo.NoCompression()))
	return s
}

// WithHook lets tests see what the client does, behind what the broker has seen of it.
func WithHook(s Settings, hook kgo.Hook) Settings {
	s.client = append(s.client, kgo.WithHooks(hook))
	return s
}
