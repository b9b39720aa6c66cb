package scenario

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// plainOrder is the business row where the event is written by hand.
type plainOrder struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Note string
}

// TableName implements gorm's Tabler.
func (plainOrder) TableName() string { return "latency_orders" }

const (
	handTable   = "outbox"
	handBatchOf = 100
	// handChannel is where commits notify the loop in another process.
	handChannel = "outbox_rows"
)

// handTables makes the minimal table.
func (t *turn) handTables(ctx context.Context) error {
	_, err := t.database.Admin.Exec(ctx, driver.RenderSQL(readSQL("minimal_table"), handTable))
	return err
}

// placeByHand writes an order and its message. notify also notifies other processes, in the
// transaction, which costs writers that are many, but is the shortest way: the server tells
// listeners as it commits.
func (t *turn) placeByHand(db *gorm.DB, notify bool) writer {
	insert := driver.RenderSQL(readSQL("latency_insert"), handTable)
	return func(ctx context.Context, n int64) error {
		payload, err := t.payload(n)
		if err != nil {
			return err
		}
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&plainOrder{ID: n, Note: "placed"}).Error; err != nil {
				return err
			}
			// Past GORM, which would look for its own placeholders.
			if _, err := tx.Statement.ConnPool.ExecContext(ctx, insert, n, messageID(n), drainBroker, t.stream, peerType, peerHeaders, payload); err != nil {
				return err
			}
			if notify {
				_, err = tx.Statement.ConnPool.ExecContext(ctx, "NOTIFY "+handChannel)
			}
			return err
		})
	}
}

// openHand connects a worker, as lean as that of the drain.
func openHand(ctx context.Context, database, server string) (*hand, error) {
	options, err := redis.ParseURL(server)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	return &hand{
		conn: conn, client: redis.NewClient(options), limit: handBatchOf, trips: new(atomic.Int64),
		claim: driver.RenderSQL(readSQL("minimal_claim"), handTable), mark: driver.RenderSQL(readSQL("minimal_mark"), handTable),
	}, nil
}

func (h *hand) close(ctx context.Context) error {
	return errors.Join(h.client.Close(), h.conn.Close(context.WithoutCancel(ctx)))
}

// serve delivers until waiting for rows fails. What was published is marked in one round trip with
// the next claim.
func (h *hand) serve(ctx context.Context, stream string, wait func(context.Context) error) error {
	done, next := h.batch(stream), h.batch(stream)
	for {
		h.shards, h.turn = []int{0}, 0
		if err := h.exchange(ctx, done, next); err != nil {
			return err
		}
		if len(next.places) == 0 {
			if err := wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err := h.publish(ctx, next); err != nil {
			return err
		}
		done, next = next, done
	}
}

// startHand has the loop in this process, which a commit wakes by a channel.
func startHand(ctx context.Context, t *turn) (writer, func() error, error) {
	if err := t.handTables(ctx); err != nil {
		return nil, nil, err
	}
	db, pool, err := t.openGORM()
	if err != nil {
		return nil, nil, err
	}
	h, err := openHand(ctx, t.database.URL, t.redis)
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	running, stop := context.WithCancel(ctx)
	wake := make(chan struct{}, 1)
	var group errgroup.Group
	group.Go(func() error {
		err := h.serve(running, t.stream, func(ctx context.Context) error {
			select {
			case <-wake:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if running.Err() != nil {
			err = nil // it was told to end
		}
		return errors.Join(err, h.close(ctx))
	})
	place := t.placeByHand(db, false)
	write := func(ctx context.Context, n int64) error {
		if err := place(ctx, n); err != nil {
			return err
		}
		select {
		case wake <- struct{}{}:
		default:
		}
		return nil
	}
	return write, func() error {
		stop()
		return errors.Join(group.Wait(), pool.Close())
	}, nil
}

// startListener has the loop in another process, which the server notifies.
func startListener(ctx context.Context, t *turn) (writer, func() error, error) {
	if err := t.handTables(ctx); err != nil {
		return nil, nil, err
	}
	db, pool, err := t.openGORM()
	if err != nil {
		return nil, nil, err
	}
	child, err := startChild(ctx, childSpec{Kind: childListener, Database: t.database.URL, Redis: t.redis, Stream: t.stream})
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	return t.placeByHand(db, true), func() error { return errors.Join(child.stop(), pool.Close()) }, nil
}
