// Package clients links the clients of databases and brokers that are in modules of their own: all
// of them, since the command opens whatever a configuration may name.
package clients

import (
	"context"
	"fmt"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/mysql"
)

// Options are what fanout needs to open a database of every driver, and a broker of every type of
// config.BrokerTypes.
func Options() []fanout.Option {
	return []fanout.Option{
		fanout.WithDriver(outbox.MySQL, mysql.FromConfig),
		fanout.WithBrokerType(config.TypePubSub, gcppubsub.FromConfig),
		fanout.WithBrokerType(config.TypeRabbitMQ, rabbitmq.FromConfig),
		fanout.WithBrokerType(config.TypeNATS, nats.FromConfig),
		fanout.WithBrokerType(config.TypeKafka, kafka.FromConfig),
	}
}

// Check returns what a broker's client refuses of its settings. It connects to no server, and reads
// no file: those are where the relay runs.
func Check(ctx context.Context, cfg *config.Config, name string) error {
	settings := cfg.Brokers[name]
	settings.TLS, settings.NATS.CredentialsFile = config.TLS{Enabled: settings.TLS.Enabled}, ""
	switch settings.Type {
	case config.TypeNATS: // whose client connects when it is opened
		if err := nats.CheckConfig(settings); err != nil {
			return fmt.Errorf("brokers.%s: %w", name, err)
		}
	case config.TypeRabbitMQ, config.TypeKafka, config.TypeWebhook:
		broker, err := fanout.OpenBroker(ctx, &config.Config{Brokers: map[string]config.Broker{name: settings}}, name, Options()...)
		if err != nil {
			return fmt.Errorf("brokers.%s: %w", name, err)
		}
		_ = broker.Close(ctx)
	}
	return nil
}
