package worker

import (
	"context"
	"errors"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	brokerpubsub "github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/pubsubconsumer"
	"github.com/gorm-fanout/fanout/inbox/redisconsumer"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

const (
	// claimAfter is how long a Redis consumer may be silent before others claim its messages.
	claimAfter = 3 * time.Second
	// handlerPatience bounds a handler whose connection is dead.
	handlerPatience = 4 * time.Second
	// projectorsShutdown is how long what a consumer has claimed may take when it is asked to end.
	projectorsShutdown = 5 * time.Second
)

// project is a service that consumes everything: a projection of the accounts, once for each
// broker, kept with the inbox.
func project(ctx context.Context, ledger *scenario.Ledger) error {
	redis.SetLogger(silent{})
	cfg, err := config.Load(os.Getenv(ConfigVariable))
	if err != nil {
		return err
	}
	db, err := openDatabase(cfg.Databases["default"], 6)
	if err != nil {
		return err
	}
	handlers := projectionHandlers(db)
	options, err := redis.ParseURL(cfg.Brokers[scenario.Internal].URL.Reveal())
	if err != nil {
		return err
	}
	options.ReadTimeout = 2 * readPatience
	streams := redis.NewClient(options)
	topics, err := pubsub.NewClient(ctx, scenario.Project, append(brokerpubsub.ClientOptions(), option.WithEndpoint(cfg.Brokers[scenario.PubSub].Endpoint),
		option.WithoutAuthentication(), option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))...)
	if err != nil {
		return err
	}
	consumers, err := projectionConsumers(streams, topics, &noting{handlers, ledger})
	if err != nil {
		return err
	}
	all, running := errgroup.WithContext(ctx)
	for _, consumer := range consumers {
		all.Go(func() error { return consumer.Run(running) })
	}
	if err := errors.Join(all.Wait(), streams.Close(), topics.Close(), closeApplication(db)); err != nil {
		return err
	}
	return ledger.Write(scenario.Line{Ended: true}) // what Google's library leaves behind is not ours
}

// projectionHandlers add what an event says to the sums of its account. An event that was handled
// twice, or not at all, shows in them.
func projectionHandlers(db *gorm.DB) *inbox.Handlers {
	handlers := inbox.NewHandlers(db)
	inbox.On(handlers, "Chaos.Moved.v1", apply[scenario.Moved])
	inbox.On(handlers, "Chaos.Noted.v1", apply[scenario.Noted])
	inbox.On(handlers, scenario.AuditedType, apply[scenario.Audited])
	return handlers
}

// projection is what a consumer has made of the events of an account.
type projection struct {
	Consumer, Account string `gorm:"primaryKey"`
	Events, Total     int64
}

// apply is the same for all types of events.
func apply[E scenario.Moved | scenario.Noted | scenario.Audited](tx *gorm.DB, event E, m *inbox.Message) error {
	moved := scenario.Moved(event)
	add := clause.OnConflict{
		Columns: []clause.Column{{Name: "consumer"}, {Name: "account"}},
		DoUpdates: clause.Assignments(map[string]any{
			"events": gorm.Expr("projections.events + 1"), "total": gorm.Expr("projections.total + ?", moved.Seq),
		}),
	}
	return tx.Clauses(add).Create(&projection{m.Consumer, moved.Account, 1, moved.Seq}).Error
}

// noting records the duplicates that the inbox has dropped.
type noting struct {
	*inbox.Handlers

	ledger *scenario.Ledger
}

// Handle implements inbox.Handler.
func (n *noting) Handle(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
	outcome, err := n.Handlers.Handle(ctx, m)
	if outcome == inbox.Duplicate {
		err = n.ledger.Write(scenario.Line{Dropped: m.Consumer})
	}
	return outcome, err
}

// runner is a consumer of either kind.
type runner interface {
	Run(ctx context.Context) error
}

func projectionConsumers(streams *redis.Client, topics *pubsub.Client, handlers inbox.Handler) ([]runner, error) {
	retry := inbox.Retry{BaseDelay: 100 * time.Millisecond, MaxDelay: time.Second, MaxAttempts: 1000}
	consumers, problems := []runner{}, []error{}
	for consumer, names := range map[string][]string{scenario.Internal: scenario.Streams(), scenario.Partner: scenario.PartnerStreams()} {
		made, err := redisconsumer.NewConsumer(streams, scenario.ProjectionGroup, names, handlers, redisconsumer.WithConsumer(consumer),
			redisconsumer.WithRetry(retry), redisconsumer.WithTimeout(handlerPatience), redisconsumer.WithClaimAfter(claimAfter),
			redisconsumer.WithWorkers(3), redisconsumer.WithShutdownTimeout(projectorsShutdown))
		consumers, problems = append(consumers, made), append(problems, err)
	}
	for _, stream := range scenario.Streams() {
		made, err := pubsubconsumer.NewConsumer(topics, scenario.ProjectionSubscription(stream), handlers, pubsubconsumer.WithConsumer(scenario.PubSub),
			pubsubconsumer.WithRetry(retry), pubsubconsumer.WithTimeout(handlerPatience), pubsubconsumer.WithWorkers(3), pubsubconsumer.WithShutdownTimeout(projectorsShutdown))
		consumers, problems = append(consumers, made), append(problems, err)
	}
	return consumers, errors.Join(problems...)
}
