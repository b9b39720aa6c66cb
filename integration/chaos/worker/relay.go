package worker

import (
	"context"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/mysql"
)

// openPatience is how long a relay waits for its database when it starts.
const openPatience = 5 * time.Second

// Drivers are the options that open the databases of the rig.
func Drivers() []fanout.Option {
	return []fanout.Option{fanout.WithDriver(outbox.MySQL, mysql.FromConfig)}
}

// relay is a relay as "fanout relay" runs it.
func relay(ctx context.Context, ledger *scenario.Ledger) error {
	redis.SetLogger(silent{})
	cfg, err := config.Load(os.Getenv(ConfigVariable))
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	opened, err := fanout.Open(opening, cfg, append(Drivers(), fanout.WithName(os.Getenv(NameVariable)), fanout.WithBrokerType(config.TypePubSub, gcppubsub.FromConfig),
		fanout.WithBrokerType(config.TypeRabbitMQ, rabbitmq.FromConfig), fanout.WithBrokerType(config.TypeNATS, nats.FromConfig),
		fanout.WithBrokerType(config.TypeKafka, kafka.FromConfig))...)
	if err != nil {
		return err
	}
	if err := opened.Run(ctx); err != nil {
		return err
	}
	line := scenario.Line{}
	for _, stats := range opened.Stats() {
		line.LeaseLost += stats.LeaseLost
		line.Sent += stats.Published
	}
	return ended(ledger, line)
}

// silent keeps the Redis client from writing down each failed dial: the relay sums them up itself.
type silent struct{}

// Printf implements the client's interface.
func (silent) Printf(context.Context, string, ...any) {}
