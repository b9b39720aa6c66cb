package kafka

import (
	"context"
	"net"

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

// WithDialer lets tests stand between the client and its servers.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(o *options) { o.dial = dial }
}

// WithoutCompression lets tests read what is sent.
func WithoutCompression() Option {
	return withClient(kgo.ProducerBatchCompression(kgo.NoCompression()))
}

func withClient(opt kgo.Opt) Option { return func(o *options) { o.client = append(o.client, opt) } }
