// Package clients links the clients of databases and brokers that are in modules of their own: all
// of them, since the command opens whatever a configuration may name.
package clients

import (
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
