package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	brokerpubsub "github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub/pubsubconsumer"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// consumerVariable makes this program the demo's other process; it holds what that one has to know.
const consumerVariable = "FANOUT_DEMO_CONSUMER"

// consumerConfig is what the consumer's process has to know.
type consumerConfig struct {
	Redis    string `json:"redis"`    // address of the internal broker
	PubSub   string `json:"pubsub"`   // and of the partner's
	Database string `json:"database"` // path of the consumer's own database
}

const (
	consumerWorkers  = 4
	consumerShutdown = 5 * time.Second
	// consumerPatience is how long after its parent this process may live at most.
	consumerPatience = 10 * time.Second
)

// consumerMain is the demo's other process, the consumer: main calls it first, as the projector
// starts the same program again. Where this process is not that one, which the environment says, ok
// is false and nothing has happened. Else the program has to exit with the code.
func consumerMain() (code int, ok bool) {
	text, ok := os.LookupEnv(consumerVariable)
	if !ok {
		return 0, false
	}
	var cfg consumerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		fmt.Fprintf(os.Stderr, "%s is set for the demo's own use: %v\n", consumerVariable, err)
		return 1, true
	}
	signal.Ignore(os.Interrupt) // from a terminal all processes get it; the parent decides
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		// The parent holds the other end open for as long as it lives, however it ends.
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
		time.Sleep(consumerPatience)
		os.Exit(1)
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	slog.SetDefault(log)
	if err := consume(ctx, cfg, &reporter{out: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// consume keeps the projections of both brokers' messages until ctx ends.
func consume(ctx context.Context, cfg consumerConfig, observer inbox.Observer) error {
	db, err := openProjections(cfg.Database)
	if err != nil {
		return err
	}
	defer closeProjections(db) //nolint:errcheck // what is committed is committed
	if err := createProjections(ctx, db); err != nil {
		if ctx.Err() != nil { // it is asked to stop before it has begun
			return nil
		}
		return err
	}
	handlers := projectionHandlers(db)
	common := inbox.ConsumerConfig{
		Workers: consumerWorkers, Retry: inbox.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: 500 * time.Millisecond},
		ShutdownTimeout: consumerShutdown, Observer: observer,
	}

	internal := redis.NewClient(&redis.Options{Addr: cfg.Redis})
	defer internal.Close()
	inside, err := redisconsumer.NewConsumer(internal, warehouse, []string{internalStream}, handlers,
		redisconsumer.Config{ConsumerConfig: common, Name: "projector", Block: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	external, err := pubsub.NewClient(ctx, partnerProject, append(brokerpubsub.ClientOptions(), option.WithEndpoint(cfg.PubSub),
		option.WithoutAuthentication(), option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))...)
	if err != nil {
		return err
	}
	defer external.Close()
	common.Consumer = partner
	outside, err := pubsubconsumer.NewConsumer(external, partnerSubscription, handlers, pubsubconsumer.Config{ConsumerConfig: common})
	if err != nil {
		return err
	}
	both, running := errgroup.WithContext(ctx)
	both.Go(func() error { return inside.Run(running) })
	both.Go(func() error { return outside.Run(running) })
	return errors.Join(both.Wait(), handlers.Err())
}

// The words of a report, one a line, each before or after what it tells of: a process that is
// killed may not have reported its last acts.
const (
	reportDelivered = "delivered" // to a handler
	reportDuplicate = "duplicate" // which the inbox has dropped
)

// reporter tells the parent what happens to messages.
type reporter struct {
	mu  sync.Mutex
	out io.Writer
}

var _ inbox.Observer = (*reporter)(nil)

func (r *reporter) say(word string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = io.WriteString(r.out, word+"\n")
}

// Begin implements inbox.Observer.
func (r *reporter) Begin(ctx context.Context, _ *inbox.Message) context.Context {
	r.say(reportDelivered)
	return ctx
}

// End implements inbox.Observer.
func (r *reporter) End(_ context.Context, a *inbox.Attempt) {
	if a.Outcome == inbox.Duplicate {
		r.say(reportDuplicate)
	}
}

// Forwarded implements inbox.Observer. A message that is lost to the projections shows in them.
func (r *reporter) Forwarded(context.Context, *inbox.Message, error) {}
