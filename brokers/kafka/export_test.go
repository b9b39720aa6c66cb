package kafka

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
)

// WithDialer lets tests stand between the client and its servers.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return withClient(kgo.Dialer(dial))
}

// WithoutCompression lets tests read what is sent.
func WithoutCompression() Option {
	return withClient(kgo.ProducerBatchCompression(kgo.NoCompression()))
}

func withClient(opt kgo.Opt) Option { return func(o *options) { o.client = append(o.client, opt) } }
