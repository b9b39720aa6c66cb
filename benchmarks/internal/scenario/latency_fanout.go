package scenario

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// latencyOrder is the business row, as an aggregate.
type latencyOrder struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Note string

	uow.Aggregate
}

// TableName implements gorm's Tabler.
func (latencyOrder) TableName() string { return "latency_orders" }

// fanoutConfig is a configuration with one database and one broker, as it is by default but for
// where messages go. notify is the database's setting of that name; nil leaves it out.
func (t *turn) fanoutConfig(notify *bool) ([]byte, error) {
	database := map[string]any{"driver": "postgres", "dsn": t.database.URL}
	if notify != nil {
		database["notify"] = *notify
	}
	return json.Marshal(map[string]any{ // which is YAML, too
		"databases": map[string]any{"default": database},
		"brokers":   map[string]any{"default": map[string]any{"type": "redis", "url": t.redis, "destination": t.stream}},
	})
}

// canNotify says whether a commit can wake relays in other processes: there is a setting for it,
// which is on by default.
func canNotify() bool {
	_, err := config.Parse([]byte(`{"databases": {"default": {"driver": "postgres", "notify": true}}, "brokers": {"default": {"type": "memory"}}}`), "probe")
	return err == nil
}

// openGORM opens a handle with one connection, which has the clock.
func (t *turn) openGORM() (*gorm.DB, *sql.DB, error) {
	conn, err := pgx.ParseConfig(t.database.URL)
	if err != nil {
		return nil, nil, err
	}
	conn.Tracer = commitClock{}
	pool := stdlib.OpenDB(*conn)
	pool.SetMaxIdleConns(2)
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	return db, pool, nil
}

// openFanout makes the outbox table and opens a handle with the plugin.
func (t *turn) openFanout(ctx context.Context, cfg *config.Config) (db *gorm.DB, pool *sql.DB, err error) {
	store, err := fanout.OpenStore(ctx, cfg, "default")
	if err != nil {
		return nil, nil, err
	}
	_, err = store.Migrate(ctx)
	if err = errors.Join(err, store.Close()); err != nil {
		return nil, nil, err
	}
	events := envelope.NewCatalog("ordering")
	envelope.Register[note](events)
	if db, pool, err = t.openGORM(); err != nil {
		return nil, nil, err
	}
	if err := db.Use(gormplugin.New(events, cfg.Routing(), gormplugin.WithLogger(slog.New(slog.DiscardHandler)))); err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	return db, pool, nil
}

// place writes an order that raises an event.
func (t *turn) place(db *gorm.DB) writer {
	return func(ctx context.Context, n int64) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			order := &latencyOrder{ID: n, Note: "placed"}
			order.Raise(note{Seq: n, Text: t.text})
			return tx.Create(order).Error
		})
	}
}

// startFanout has the relay in this process, which the plugin wakes.
func startFanout(ctx context.Context, t *turn) (writer, func() error, error) {
	text, err := t.fanoutConfig(nil)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := config.Parse(text, "latency")
	if err != nil {
		return nil, nil, err
	}
	db, pool, err := t.openFanout(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	relay, err := fanout.Open(ctx, cfg, fanout.WithDB("default", db), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	running, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return relay.Run(running) })
	return t.place(db), func() error {
		stop()
		return errors.Join(group.Wait(), pool.Close())
	}, nil
}

// startRelay has the relay in another process, which finds out by a notification, or by polling.
func startRelay(notify bool) func(context.Context, *turn) (writer, func() error, error) {
	return func(ctx context.Context, t *turn) (writer, func() error, error) {
		setting := &notify
		if !canNotify() {
			setting = nil
		}
		text, err := t.fanoutConfig(setting)
		if err != nil {
			return nil, nil, err
		}
		cfg, err := config.Parse(text, "latency")
		if err != nil {
			return nil, nil, err
		}
		db, pool, err := t.openFanout(ctx, cfg)
		if err != nil {
			return nil, nil, err
		}
		child, err := startChild(ctx, childSpec{Kind: childRelay, Config: string(text)})
		if err != nil {
			return nil, nil, errors.Join(err, pool.Close())
		}
		return t.place(db), func() error { return errors.Join(child.stop(), pool.Close()) }, nil
	}
}
