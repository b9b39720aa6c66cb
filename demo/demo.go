package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// settings of a run.
type settings struct {
	orders   int       // to place, at least 1
	live     io.Writer // gets what a person sees while it runs; nil for none
	terminal bool      // live is a terminal, on which lines can be drawn again
	// timeout after which the run fails. Default 1 min plus 20 ms per order.
	timeout time.Duration
	// listen is where the dashboard is served while the demo runs, as HOST:PORT of this machine;
	// where that port is taken, another one is. Empty for no dashboard.
	listen string
	// opened is called with the dashboard's URL as soon as it answers.
	opened func(url string)
	// enter keeps the dashboard after the result, until a line can be read from it or the context
	// ends. Default: it ends with the result.
	enter io.Reader
}

// configuration is what a user would write; only the addresses are filled in.
const configuration = `
databases:
  default: {driver: sqlite}
outbox:
  external_brokers: [partner, carrier]
  publish_timeout: 2s
brokers:
  default: {type: redis, url: "redis://%s"}
  partner: {type: pubsub, project: acme, endpoint: "%s"}
  carrier:
    type: webhook
    url: "%s"
    secrets: ["%s"]
    filter: ["Ordering.OrderShipped.*"]
    allow_http: true              # it is in this process
    allow_private_networks: true
`

// demonstrate places the orders, delivers everything, and compares what was committed with what
// arrived and with what consumers have made of it. It starts this program again as the consumer:
// see consumerMain.
func demonstrate(ctx context.Context, cfg settings) (*Result, error) {
	if cfg.timeout == 0 {
		cfg.timeout = time.Minute + time.Duration(cfg.orders)*20*time.Millisecond
	}
	servers, err := startServers(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	defer servers.close()
	dir, err := os.MkdirTemp("", "fanout-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a directory for temporary files

	run := &run{cfg: cfg, servers: servers, view: newView(cfg), projector: &projector{cfg: consumerConfig{
		Redis: servers.redisAddr(), PubSub: servers.partnerAddr(), Database: filepath.Join(dir, "consumer.db"),
	}}}
	if err := run.open(ctx, filepath.Join(dir, "shop.db")); err != nil {
		return nil, err
	}
	defer run.closeDB()
	result, err := run.perform(ctx)
	if err != nil {
		return nil, err
	}
	return result, result.verdict()
}

// run is one demonstration.
type run struct {
	cfg       settings
	servers   *servers
	view      *view
	shop      *shop
	store     driver.Store
	relay     *fanout.Relay
	projector *projector
	closeDB   func()
}

// open makes the shop's database with its outbox, and the relay in the same process.
func (r *run) open(ctx context.Context, path string) error {
	cfg, err := config.Parse(fmt.Appendf(nil, configuration, r.servers.redisAddr(), r.servers.partnerAddr(), r.servers.carrier.url, r.servers.carrier.secret), "demo.yaml")
	if err != nil {
		return err
	}
	cfg.Databases["default"] = config.Database{Driver: outbox.SQLite, DSN: config.Secret(path)}
	db, err := gorm.Open(sqlite.Open(path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(10000)"), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return fmt.Errorf("open the shop's database: %w", err)
	}
	sqlDB, err := db.DB()
	if err != nil {
		return fmt.Errorf("open the shop's database: %w", err)
	}
	r.closeDB = func() { _ = sqlDB.Close() }
	if r.store, err = fanout.OpenStore(ctx, cfg, "default"); err != nil {
		return err
	}
	closeDB := r.closeDB
	r.closeDB = func() { _ = r.store.Close(); closeDB() }
	if _, err := r.store.Migrate(ctx); err != nil {
		return err
	}
	if r.shop, err = openShop(db, gormplugin.New(catalog(), cfg.Routing())); err != nil {
		return err
	}
	// The view tells about the outage in its own words.
	quiet := slog.New(slog.DiscardHandler)
	r.relay, err = fanout.Open(ctx, cfg, fanout.WithBrokerType(gcppubsub.Type()),
		fanout.WithDB("default", db), fanout.WithLogger(quiet))
	return err
}

// perform runs the relay with its dashboard, and beside it the shop until everything is delivered.
// What has arrived is compared while the relay still runs, for the pages need it to the end.
func (r *run) perform(ctx context.Context) (*Result, error) {
	page, err := openPage(ctx, r.relay, r.cfg.listen)
	if err != nil {
		return nil, errors.Join(err, r.relay.Close()) //nolint:contextcheck // closing has its own time
	}
	relayCtx, stop := context.WithCancel(ctx)
	defer stop()
	relayed := make(chan error, 1)
	go func() { relayed <- r.relay.Run(relayCtx) }()
	if page != nil {
		r.view.serves(page.url)
		if r.cfg.opened != nil {
			r.cfg.opened(page.url)
		}
	}

	result, err := r.play(ctx)
	if err == nil {
		r.view.finish(result)
		if page != nil && r.cfg.enter != nil {
			r.view.stays(page.url)
			page.stay(ctx, r.cfg.enter)
		}
	}
	page.close() //nolint:contextcheck // closing has its own time
	stop()
	return result, errors.Join(err, <-relayed)
}

// play runs the shop until everything is delivered and consumed, and compares.
func (r *run) play(ctx context.Context) (*Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.timeout,
		fmt.Errorf("not everything was delivered within %s: was a broker paused?", r.cfg.timeout))
	defer cancel()
	defer r.projector.close()
	if err := r.projector.start(ctx); err != nil {
		return nil, err
	}
	placed := make(chan error, 1)
	go func() { placed <- r.shop.trade(ctx, r.cfg.orders) }()
	if err := r.watch(ctx, placed); err != nil {
		if ctx.Err() != nil { // which ends the consumer's process, too, and whatever else
			err = fmt.Errorf("gave up: %w", context.Cause(ctx))
		}
		return nil, err
	}
	if err := r.projector.stop(); err != nil {
		return nil, err
	}
	return r.compare(ctx)
}

// lookPause is how long what a look at databases and brokers has found is good for.
const lookPause = 100 * time.Millisecond

// watch shows the progress, lets happen what is to happen, and returns when nothing is open and
// everything is consumed.
func (r *run) watch(ctx context.Context, placed <-chan error) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var looked time.Time
	now := &moment{trading: true}
	rest := acts()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-placed:
			if err != nil {
				return err
			}
			now.trading, placed = false, nil
		case <-ticker.C:
		}
		now.placed = r.shop.placed()
		if time.Since(looked) >= lookPause {
			if err := r.look(ctx, now); err != nil {
				return err
			}
			looked = time.Now()
			r.view.progress(now, r.projector)
		}
		if len(rest) > 0 {
			over, err := rest[0].step(ctx, r, now)
			if err != nil {
				return err
			}
			if over {
				rest, now.completed = rest[1:], false
			}
			continue
		}
		if now.completed {
			r.view.done(now, r.projector)
			return nil
		}
	}
}

// look finds out where the run stands.
func (r *run) look(ctx context.Context, now *moment) (err error) {
	if now.counts, err = r.store.Counts(ctx); err != nil {
		return err
	}
	if err := r.projector.ended(); err != nil {
		return err
	}
	now.completed = false
	if now.trading || open(now.counts) > 0 {
		return nil
	}
	n, err := r.servers.unconfirmed(ctx)
	now.completed = n == 0
	if n != now.unconfirmed || now.since.IsZero() {
		now.unconfirmed, now.since = n, time.Now()
	} else if !now.completed && time.Since(now.since) >= stuckTime {
		r.servers.deadlinesPass()
		now.since = time.Time{}
	}
	return err
}

// open is the number of rows that are not finished.
func open(counts []admin.BrokerCounts) int64 {
	var n int64
	for _, broker := range counts {
		for status, count := range broker.Counts {
			if !status.Terminal() {
				n += count
			}
		}
	}
	return n
}

// compare asks the brokers what their consumers see, and holds it against the rows; and the
// consumers what they have made of it.
func (r *run) compare(ctx context.Context) (*Result, error) {
	rows, err := r.shop.rows(ctx)
	if err != nil {
		return nil, err
	}
	arrived, err := r.servers.arrived(ctx)
	if err != nil {
		return nil, err
	}
	result := newResult(r.cfg.orders, rows, arrived)
	expected, err := r.shop.expected(ctx)
	if err != nil {
		return nil, err
	}
	actual, err := projected(ctx, r.projector.cfg.Database)
	if err != nil {
		return nil, err
	}
	result.addProjections(expected, actual)
	result.Kills = r.projector.kills
	result.Deliveries, result.DuplicatesDropped = r.projector.reports.numbers()
	return result, nil
}
