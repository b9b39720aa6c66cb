package worker

import (
	"context"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// openPatience is how long a relay waits for its database when it starts.
const openPatience = 5 * time.Second

// Types are those of the brokers of the rig.
func Types() []adapter.Type {
	return append(fanout.BrokerTypes(), gcppubsub.Type(), nats.Type(), kafka.Type())
}

// relay is a relay as "fanout relay" runs it.
func relay(ctx context.Context, ledger *scenario.Ledger) error {
	redis.SetLogger(silent{})
	cfg, err := config.Load(os.Getenv(ConfigVariable), config.WithBrokerTypes(Types()...))
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	opened, err := fanout.Open(opening, cfg, fanout.WithName(os.Getenv(NameVariable)))
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
