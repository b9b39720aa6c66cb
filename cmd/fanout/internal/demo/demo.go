// Package demo is the main job on nothing but Go: an ordering service on SQLite places orders through GORM, and a relay
// delivers their events through the real adapters to a Redis-protocol server and to Google's Pub/Sub emulator, both in
// this process. For a moment the partner's server is gone; the internal broker carries on, and nothing is lost.
package demo

import (
	"context"
	"encoding/json"
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
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

// Config of a run.
type Config struct {
	// Orders to place, at least 1.
	Orders int
	// Live gets what a person sees while it runs; io.Discard for none.
	Live io.Writer
	// Terminal says that Live is a terminal, on which lines can be drawn again.
	Terminal bool
	// Timeout after which the run gives up. Default 1 min plus 20 ms per order.
	Timeout time.Duration
	// Listen is where the dashboard is served while the demo runs, as HOST:PORT of this machine; where that port is taken, another one is.
	// Empty for no dashboard.
	Listen string
	// Opened is told the dashboard's URL as soon as it answers.
	Opened func(url string)
	// Enter keeps the dashboard after the result, until a line can be read from it or the context ends. Default: it ends with the result.
	Enter io.Reader
}

// Result is what "fanout demo --json" prints; its fields are a contract.
type Result struct {
	Orders int `json:"orders"`
	Events int `json:"events"`
	// Rows of each broker by status.
	Rows map[string]map[outbox.Status]int64 `json:"rows"`
	// Delivered is the number of different messages that each broker's consumers can see.
	Delivered map[string]int `json:"delivered"`
	// Lost counts rows that were committed and that their broker does not have.
	Lost int `json:"lost"`
	// Duplicates counts deliveries beyond the first of a message.
	Duplicates      int             `json:"duplicates"`
	InternalExample json.RawMessage `json:"internal_example"`
	ExternalExample json.RawMessage `json:"external_example"`
}

// ErrLost is returned beside a result that counts lost messages.
var ErrLost = errors.New("messages were lost")

// configuration is what a user would write; only the addresses are filled in.
const configuration = `
databases:
  default: {driver: sqlite}
outbox:
  external_brokers: [partner]
  publish_timeout: 2s
brokers:
  default: {type: redis, url: "redis://%s"}
  partner: {type: pubsub, project: acme, endpoint: "%s"}
`

// Run places the orders, delivers everything, and compares what was committed with what arrived.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Orders < 1 {
		return nil, fmt.Errorf("demo: place at least one order, not %d", cfg.Orders)
	}
	if err := CheckListen(cfg.Listen); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute + time.Duration(cfg.Orders)*20*time.Millisecond
	}
	servers, err := startServers(ctx)
	if err != nil {
		return nil, fmt.Errorf("demo: start the servers: %w", err)
	}
	defer servers.close()
	dir, err := os.MkdirTemp("", "fanout-demo-")
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a directory for temporary files

	run := &run{cfg: cfg, servers: servers, view: newView(cfg)}
	if err := run.open(ctx, filepath.Join(dir, "shop.db")); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	defer run.closeDB()
	result, err := run.perform(ctx)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if result.Lost > 0 {
		return result, ErrLost
	}
	return result, nil
}

// run is one demonstration under way.
type run struct {
	cfg     Config
	servers *servers
	view    *view
	shop    *shop
	store   outbox.FullStore
	relay   *fanout.Relay
	closeDB func()
}

// open makes the shop's database with its outbox, and the relay in the same process.
func (r *run) open(ctx context.Context, path string) error {
	cfg, err := config.Parse(fmt.Appendf(nil, configuration, r.servers.redisAddr(), r.servers.partnerAddr()), "demo.yaml")
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
	r.relay, err = fanout.Open(ctx, cfg, fanout.WithDB("default", db), fanout.WithLogger(quiet))
	return err
}

// perform runs the relay with its dashboard, and beside it the shop until everything is delivered. What has arrived is compared while the
// relay still runs, for the pages need it to the end.
func (r *run) perform(ctx context.Context) (*Result, error) {
	page, err := openPage(ctx, r.relay, r.cfg.Listen)
	if err != nil {
		return nil, errors.Join(err, r.relay.Close()) //nolint:contextcheck // closing has its own time
	}
	relayCtx, stop := context.WithCancel(ctx)
	defer stop()
	relayed := make(chan error, 1)
	go func() { relayed <- r.relay.Run(relayCtx) }()
	if page != nil {
		r.view.serves(page.url)
		if r.cfg.Opened != nil {
			r.cfg.Opened(page.url)
		}
	}

	result, err := r.play(ctx)
	if err == nil {
		r.view.finish(result)
		if page != nil && r.cfg.Enter != nil {
			r.view.stays(page.url)
			page.stay(ctx, r.cfg.Enter)
		}
	}
	page.close() //nolint:contextcheck // closing has its own time
	stop()
	return result, errors.Join(err, <-relayed)
}

// play runs the shop until everything is delivered, and compares.
func (r *run) play(ctx context.Context) (*Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout,
		fmt.Errorf("not everything was delivered within %s: was a broker paused?", r.cfg.Timeout))
	defer cancel()
	placed := make(chan error, 1)
	go func() { placed <- r.shop.trade(ctx, r.cfg.Orders) }()
	if err := r.watch(ctx, placed); err != nil {
		return nil, err
	}
	return r.compare(ctx)
}

// watch shows the progress, takes the partner down for a moment, and returns when nothing is open.
func (r *run) watch(ctx context.Context, placed <-chan error) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	trading := true
	outage := outage{servers: r.servers, view: r.view, orders: r.cfg.Orders}
	defer outage.end()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up: %w", context.Cause(ctx))
		case err := <-placed:
			if err != nil {
				return err
			}
			trading, placed = false, nil
		case <-ticker.C:
		}
		counts, err := r.store.Counts(ctx)
		if err != nil {
			return err
		}
		r.view.progress(r.shop.placed(), counts)
		if err := outage.step(r.shop.placed(), trading, counts); err != nil {
			return err
		}
		if !trading && outage.over() && open(counts) == 0 {
			r.view.done(r.shop.placed(), counts)
			return nil
		}
	}
}

// open is the number of rows that are not finished.
func open(counts []outbox.BrokerCounts) int64 {
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

// compare asks the brokers what their consumers see, and holds it against the rows.
func (r *run) compare(ctx context.Context) (*Result, error) {
	rows, err := r.shop.rows(ctx)
	if err != nil {
		return nil, err
	}
	arrived, err := r.servers.arrived(ctx)
	if err != nil {
		return nil, err
	}
	return newResult(r.cfg.Orders, rows, arrived), nil
}
