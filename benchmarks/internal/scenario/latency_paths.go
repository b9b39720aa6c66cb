package scenario

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// note is the data of every message.
type note struct {
	Seq  int64  `json:"seq"`
	Text string `json:"text"`
}

// order is the business row, as an aggregate.
type order struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Note string

	uow.Aggregate
}

// config is a configuration with one database and one broker.
func (t *turn) config(notify bool) (*config.Config, error) {
	text, err := json.Marshal(map[string]any{ // which is YAML, too
		"databases": map[string]any{"default": map[string]any{"driver": "postgres", "dsn": t.DSN, "notify": notify}},
		"brokers":   map[string]any{"default": map[string]any{"type": "redis", "url": t.streams.url, "destination": t.stream}},
	})
	if err != nil {
		return nil, err
	}
	return config.Parse(text, "latency")
}

// openGORM opens a handle that has the clock.
func (t *turn) openGORM() (*gorm.DB, *sql.DB, error) {
	conn, err := pgx.ParseConfig(t.DSN)
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

// place uses the plugin and writes orders that raise an event.
func (t *turn) place(db *gorm.DB, cfg *config.Config) (writer, error) {
	events := envelope.NewCatalog("ordering")
	envelope.Register[note](events)
	if err := db.Use(gormplugin.New(events, cfg.Routing(), gormplugin.WithLogger(slog.New(slog.DiscardHandler)))); err != nil {
		return nil, err
	}
	text := strings.Repeat("x", t.payload)
	return func(ctx context.Context, n int64) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			row := &order{ID: n, Note: "placed"}
			row.Raise(note{Seq: n, Text: text})
			return tx.Create(row).Error
		})
	}, nil
}

// startFanout has a relay that the plugin wakes, or one that shares nothing with the writer, as in
// another process: it finds rows by a notification or by polling.
func startFanout(apart, notify bool) func(context.Context, *turn) (writer, func() error, error) {
	return func(ctx context.Context, t *turn) (writer, func() error, error) {
		cfg, err := t.config(notify)
		if err != nil {
			return nil, nil, err
		}
		db, pool, err := t.openGORM()
		if err != nil {
			return nil, nil, err
		}
		write, err := t.place(db, cfg)
		if err != nil {
			return nil, nil, errors.Join(err, pool.Close())
		}
		options := []fanout.Option{fanout.WithLogger(slog.New(slog.DiscardHandler))}
		if !apart {
			options = append(options, fanout.WithDB("default", db))
		}
		relay, err := fanout.Open(ctx, cfg, options...)
		if err != nil {
			return nil, nil, errors.Join(err, pool.Close())
		}
		running, stop := context.WithCancel(ctx)
		var group errgroup.Group
		group.Go(func() error { return relay.Run(running) })
		return write, func() error {
			stop()
			return errors.Join(group.Wait(), pool.Close())
		}, nil
	}
}

// startHand has a loop by hand on the minimal table, which the writer wakes by a channel.
func startHand(ctx context.Context, t *turn) (writer, func() error, error) {
	if err := t.Exec(ctx, readSQL("minimal_table")); err != nil {
		return nil, nil, err
	}
	db, pool, err := t.openGORM()
	if err != nil {
		return nil, nil, err
	}
	publish, err := t.streams.publisher(ctx, t.stream)
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	const batch = 100
	h, err := openHand(ctx, t.DSN, "minimal", batch, publish)
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	running, stop := context.WithCancel(ctx)
	wake := make(chan struct{}, 1)
	var group errgroup.Group
	group.Go(func() error {
		err := h.serve(running, wake)
		if running.Err() != nil {
			err = nil // it was told to end
		}
		return errors.Join(err, h.close(ctx))
	})
	write := func(ctx context.Context, n int64) error {
		err := t.placeByHand(ctx, db, n)
		select {
		case wake <- struct{}{}:
		default:
		}
		return err
	}
	return write, func() error {
		stop()
		return errors.Join(group.Wait(), pool.Close())
	}, nil
}

// placeByHand writes an order and its message.
func (t *turn) placeByHand(ctx context.Context, db *gorm.DB, n int64) error {
	payload, err := json.Marshal(note{Seq: n, Text: strings.Repeat("x", t.payload)})
	if err != nil {
		return err
	}
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&order{ID: n, Note: "placed"}).Error; err != nil {
			return err
		}
		// Past GORM, which would look for its own placeholders.
		id := fmt.Sprintf("00000000-0000-0000-0000-%012x", n)
		_, err := tx.Statement.ConnPool.ExecContext(ctx, readSQL("minimal_insert"), n, id, broker, t.stream, "Ordering.OrderPlaced.v1", fixture.Headers, payload)
		return err
	})
}

// serve delivers until the context ends. A batch is marked in one round trip with the next claim.
func (h *hand) serve(ctx context.Context, wake <-chan struct{}) error {
	done, next := h.batch(), h.batch()
	for {
		h.shards, h.turn = []int{0}, 0
		if err := h.exchange(ctx, done, next); err != nil {
			return err
		}
		if len(next.places) == 0 {
			select {
			case <-wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := h.publish(ctx, next.messages[:len(next.places)]); err != nil {
			return err
		}
		done, next = next, done
	}
}
