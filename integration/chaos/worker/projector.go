package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

const (
	// handlerPatience bounds a handler whose connection is dead.
	handlerPatience = 4 * time.Second
	// projectorsShutdown is how long what a consumer has claimed may take when it is asked to end.
	projectorsShutdown = 5 * time.Second
)

// configOf is that of the consumers of a broker. No message is at fault.
func configOf(broker string) inbox.ConsumerConfig {
	return inbox.ConsumerConfig{
		Consumer: broker, Workers: 3, Timeout: handlerPatience, ShutdownTimeout: projectorsShutdown,
		Retry: inbox.Retry{BaseDelay: 100 * time.Millisecond, MaxDelay: time.Second, MaxAttempts: 1000},
	}
}

// projector is a service that consumes everything: a projection of the accounts, once for each
// broker, kept with the inbox.
type projector struct {
	handler   inbox.Handler
	consumers []runner
	closers   []func() error
}

// runner is a consumer of any kind.
type runner interface {
	Run(ctx context.Context) error
}

// projections make the consumers of a broker, by its type.
var projections = map[string]func(p *projector, broker string, cfg config.Broker) error{
	"redis":    projectRedis,
	"pubsub":   projectPubSub,
	"rabbitmq": projectRabbitMQ,
	"nats":     projectNATS,
	"kafka":    projectKafka,
}

func project(ctx context.Context, ledger *scenario.Ledger) error {
	redis.SetLogger(silent{})
	cfg, err := config.Load(os.Getenv(ConfigVariable), config.WithBrokerTypes(Types()...))
	if err != nil {
		return err
	}
	db, err := openDatabase(cfg.Databases["default"], 2*len(cfg.Brokers))
	if err != nil {
		return err
	}
	p := &projector{handler: &noting{projectionHandlers(db), ledger}}
	for _, broker := range slices.Sorted(maps.Keys(cfg.Brokers)) {
		if err := projections[cfg.Brokers[broker].Type](p, broker, cfg.Brokers[broker]); err != nil {
			return fmt.Errorf("worker: consume %s: %w", broker, err)
		}
	}
	all, running := errgroup.WithContext(ctx)
	for _, consumer := range p.consumers {
		all.Go(func() error { return consumer.Run(running) })
	}
	problems := []error{all.Wait()}
	for _, end := range p.closers {
		problems = append(problems, end())
	}
	if err := errors.Join(append(problems, closeApplication(db))...); err != nil {
		return err
	}
	if _, google := cfg.Brokers[scenario.PubSub]; google {
		return ledger.Write(scenario.Line{Ended: true}) // what Google's library leaves behind is not ours
	}
	return ended(ledger, scenario.Line{})
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

// projection is what a consumer has made of the events of an account. Latest is the highest place in
// its sequence so far, and behind counts the events that came after a higher one.
type projection struct {
	Consumer, Account             string `gorm:"primaryKey"`
	Events, Total, Latest, Behind int64
}

// apply is the same for all types of events.
func apply[E scenario.Moved | scenario.Noted | scenario.Audited](tx *gorm.DB, event E, m *inbox.Message) error {
	moved := scenario.Moved(event)
	add := clause.OnConflict{
		Columns: []clause.Column{{Name: "consumer"}, {Name: "account"}},
		DoUpdates: clause.Set{ // in this order: MySQL sees what it has just assigned
			{Column: clause.Column{Name: "events"}, Value: gorm.Expr("projections.events + 1")},
			{Column: clause.Column{Name: "total"}, Value: gorm.Expr("projections.total + ?", moved.Seq)},
			{Column: clause.Column{Name: "behind"}, Value: gorm.Expr("projections.behind + CASE WHEN projections.latest > ? THEN 1 ELSE 0 END", moved.Seq)},
			{Column: clause.Column{Name: "latest"}, Value: gorm.Expr("CASE WHEN projections.latest > ? THEN projections.latest ELSE ? END", moved.Seq, moved.Seq)},
		},
	}
	return tx.Clauses(add).Create(&projection{m.Consumer, moved.Account, 1, moved.Seq, moved.Seq, 0}).Error
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

// settingsOf returns a broker's settings as those of its adapter, whose type the configuration names.
func settingsOf[S adapter.Settings](cfg config.Broker) S {
	settings, is := cfg.Settings.(S)
	if !is {
		panic(fmt.Sprintf("a broker of type %q has settings of type %T", cfg.Type, cfg.Settings))
	}
	return settings
}
