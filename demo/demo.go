package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// settings of a run.
type settings struct {
	orders int       // to place, at least 1
	port   int       // of the dashboard; if it is taken, another one is used
	live   io.Writer // gets what a person sees while it runs
	// enter keeps the dashboard after the result, until a line can be read from it or the context
	// ends. Default: it ends with the result.
	enter io.Reader
}

// run is one demonstration.
type run struct {
	cfg      settings
	view     *view
	servers  *servers
	shop     *shop
	store    driver.Store
	targets  map[string]relay.Target
	engine   *relay.Engine
	consumes consumerConfig
	consumer *process
}

// demonstrate places the orders, delivers everything, and compares what was committed with what
// arrived and with what the consumer has made of it. The consumer is this program, started again:
// see consumerMain.
func demonstrate(ctx context.Context, cfg settings) (*Result, error) {
	dir, err := os.MkdirTemp("", "fanout-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a directory for temporary files
	servers, err := startServers()
	if err != nil {
		return nil, err
	}
	defer servers.http.Close()
	db, err := openDB(filepath.Join(dir, "shop.db"))
	if err != nil {
		return nil, err
	}
	defer closeDB(db) //nolint:errcheck // the directory goes, too
	r := &run{cfg: cfg, view: newView(cfg), servers: servers, consumes: consumerConfig{
		Start: servers.consumer, URL: servers.url + "/messages", Database: filepath.Join(dir, "consumer.db"),
	}}
	if err := r.prepare(ctx, db); err != nil {
		return nil, err
	}
	result, err := r.perform(ctx)
	if err != nil {
		return nil, err
	}
	return result, result.verdict()
}

// prepare makes the shop, its outbox and the relay. It composes the relay of its parts, as package
// fanout would compile the drivers and clients of every database and broker.
func (r *run) prepare(ctx context.Context, db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	if r.store, err = sqlite.New(pool, outbox.DefaultTable); err != nil {
		return err
	}
	if _, err := r.store.Migrate(ctx); err != nil {
		return err
	}
	if r.shop, err = openShop(db, outbox.Routing{External: []outbox.Route{ // "default" gets every event
		{Broker: "partner"},
		{Broker: "carrier", Types: []string{"Ordering.OrderShipped.*"}},
	}}); err != nil {
		return err
	}
	r.targets = map[string]relay.Target{"default": target(r.servers.internal)}
	for _, name := range []string{"partner", "carrier"} {
		broker, err := webhook.Open(webhook.Settings{
			URL: adapter.Secret(r.servers.url + "/webhooks/" + name), Secrets: []adapter.Secret{adapter.Secret(r.servers.secret)},
			AllowHTTP: true, AllowPrivateNetworks: true, // the endpoint is in this process
		})
		if err != nil {
			return err
		}
		r.targets[name] = target(broker)
	}
	r.engine, err = relay.NewEngine(relay.EngineConfig{
		Stores: map[string]driver.Delivery{"default": r.store}, Brokers: r.targets,
		Log: slog.New(slog.DiscardHandler), // the view reports the outages
	})
	return err
}

func target(broker brokers.Broker) relay.Target {
	return relay.Target{Broker: broker, Policy: outbox.Policy{
		PollMin: 50 * time.Millisecond, PollMax: 50 * time.Millisecond, Breaker: outbox.Breaker{MaxDelay: time.Second},
	}}
}

// perform runs the relay with its dashboard, and beside it the shop until everything is delivered.
// It compares while the relay still runs, because the dashboard needs the relay to the end.
func (r *run) perform(ctx context.Context) (*Result, error) {
	dashboard, err := r.openDashboard(ctx)
	if err != nil {
		return nil, err
	}
	relayCtx, stop := context.WithCancel(ctx)
	defer stop()
	relayed := make(chan error, 1)
	go func() { relayed <- r.engine.Run(relayCtx) }()
	r.view.printf("The dashboard is at %s while this runs, and you are its operator.\n\n", dashboard.url)
	result, err := r.play(ctx)
	if err == nil {
		r.view.finish(result)
		if r.cfg.enter != nil {
			r.view.printf("\nThe dashboard stays at %s until you press Enter.\n", dashboard.url)
			waitForLine(ctx, r.cfg.enter)
		}
	}
	dashboard.close()
	stop()
	err = errors.Join(err, <-relayed)
	for _, target := range r.targets {
		err = errors.Join(err, target.Broker.Close(context.WithoutCancel(ctx)))
	}
	return result, err
}

// play runs the shop until everything is delivered and consumed, and compares.
func (r *run) play(ctx context.Context) (*Result, error) {
	ctx, stop := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not everything was delivered in ten minutes: was a broker paused?"))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.startConsumer(ctx); err != nil {
		return nil, err
	}
	defer func() { r.consumer.kill() }()
	var trading sync.WaitGroup
	defer trading.Wait()
	defer cancel(nil)
	trading.Go(func() {
		if err := r.shop.trade(ctx, r.cfg.orders); err != nil {
			cancel(err)
		}
	})
	for _, act := range acts {
		if err := r.perturb(ctx, act); err != nil {
			return nil, err
		}
	}
	if err := r.until(ctx, r.completed); err != nil {
		return nil, err
	}
	r.servers.setAway("consumer", true)
	if <-r.consumer.done; r.consumer.err != nil {
		return nil, r.consumer.err
	}
	return r.compare(ctx)
}

// act is an outage of a broker, a kill of the consumer's process, or both.
type act struct {
	from   float64 // begins when this part of the orders is placed
	broker string  // stays away for a second; empty for none
	kill   bool    // in the middle of the outage if there is one
}

var acts = []act{
	{from: 1. / 6, kill: true},
	{from: 1. / 3, broker: "partner"},
	{from: 1. / 2, broker: "carrier"},
	{from: 2. / 3, kill: true},
	{from: 2. / 3, broker: "default", kill: true},
}

// perturb performs an act.
func (r *run) perturb(ctx context.Context, a act) error {
	err := r.until(ctx, func(now *moment) bool {
		working := now.consumer.Delivered > r.consumes.Start.Delivered || r.completed(now)
		return float64(now.placed) >= a.from*float64(r.cfg.orders) && (working || !a.kill)
	})
	half := func() error {
		began := time.Now()
		return r.until(ctx, func(*moment) bool { return time.Since(began) >= time.Second/2 })
	}
	if err == nil && a.broker != "" {
		r.servers.setAway(a.broker, true)
		r.view.printf("» %s is away. Its rows wait without spending an attempt; the others are delivered.\n", a.broker)
		err = half()
	}
	if err == nil && a.kill {
		r.consumer.kill()
		r.view.printf("» The consumer's process is killed, and started again.\n")
		r.consumes.Start = r.servers.replaceConsumer()
		err = r.startConsumer(ctx)
	}
	if err == nil && a.broker != "" {
		err = half()
		r.servers.setAway(a.broker, false)
		r.view.printf("» %s is back.\n", a.broker)
	}
	return err
}

// moment is where the run stands.
type moment struct {
	placed      int // orders
	counts      []admin.BrokerCounts
	consumer    status
	unconfirmed int // messages
}

// until looks where the run stands, and shows it, until the condition holds.
func (r *run) until(ctx context.Context, holds func(*moment) bool) (err error) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for ; ; <-ticker.C {
		now := &moment{placed: int(r.shop.placed.Load())}
		_, now.consumer, now.unconfirmed = r.servers.progress()
		if now.counts, err = r.store.Counts(ctx); err == nil {
			err = r.consumer.ended()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("gave up: %w", context.Cause(ctx))
		}
		if err != nil {
			return err
		}
		r.view.progress(now)
		if holds(now) {
			return nil
		}
	}
}

// completed reports whether all orders are placed, delivered and consumed.
func (r *run) completed(now *moment) bool {
	for _, broker := range now.counts {
		for status, count := range broker.Counts {
			if count > 0 && !status.Terminal() {
				return false
			}
		}
	}
	return now.placed == r.cfg.orders && now.unconfirmed == 0
}

// compare holds the rows against the messages at the brokers, and the shop's tables against the
// consumer's.
func (r *run) compare(ctx context.Context) (*Result, error) {
	rows, err := r.shop.rows(ctx)
	if err != nil {
		return nil, err
	}
	expected, err := r.shop.expected(ctx)
	if err != nil {
		return nil, err
	}
	actual, err := projected(ctx, r.consumes.Database)
	if err != nil {
		return nil, err
	}
	arrived, consumer, _ := r.servers.progress()
	result := newResult(r.cfg.orders, rows, arrived)
	result.Projection = compareProjections(expected, actual)
	result.Kills, result.Deliveries, result.DuplicatesDropped = consumer.Process, consumer.Delivered, consumer.Duplicates
	return result, nil
}
