package rabbitmq

import (
	"context"
	"fmt"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/config"
)

// FromConfig opens a broker of type rabbitmq with the settings of a configuration, as [Open] does. A
// relay is given it as
//
//	fanout.WithBrokerType(config.TypeRabbitMQ, rabbitmq.FromConfig)
func FromConfig(_ context.Context, _ string, cfg config.Broker) (brokers.Broker, error) {
	secured, err := cfg.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: open: %w", err)
	}
	if n := cfg.MaxMessageBytes; n > maxMessageBytes {
		return nil, fmt.Errorf("rabbitmq: open: max_message_bytes is %d: no server takes more than %d", n, maxMessageBytes)
	}
	opts := []Option{
		WithExchange(cfg.RabbitMQ.Exchange), WithExpiration(cfg.RabbitMQ.Expiration), WithMaxMessageBytes(cfg.MaxMessageBytes), WithTLS(secured),
	}
	if cfg.CreateDestinations {
		opts = append(opts, WithDeclare())
	}
	if cfg.RabbitMQ.DropUnroutable {
		opts = append(opts, WithUnroutableDropped())
	}
	b, err := Open(cfg.URL.Reveal(), opts...)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}
