package scenario

import (
	"context"
	"errors"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// openPeer connects another project: to the database, with the clock, and to Redis.
func (t *turn) openPeer(ctx context.Context) (*pgxpool.Pool, *redis.Client, error) {
	options, err := redis.ParseURL(t.redis)
	if err != nil {
		return nil, nil, err
	}
	config, err := pgxpool.ParseConfig(t.database.URL)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns, config.ConnConfig.Tracer = peerConnections, commitClock{}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	return pool, redis.NewClient(options), nil
}

// placeWith writes an order and, in its transaction, what another project wants.
func placeWith(pool *pgxpool.Pool, event func(ctx context.Context, tx pgx.Tx, n int64) error) writer {
	return func(ctx context.Context, n int64) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO latency_orders (id, note) VALUES ($1, $2)", n, "placed"); err != nil {
				return err
			}
			return event(ctx, tx, n)
		})
	}
}

func startRiver(p riverPeer) func(context.Context, *turn) (writer, func() error, error) {
	return func(ctx context.Context, t *turn) (writer, func() error, error) {
		pool, server, err := t.openPeer(ctx)
		if err != nil {
			return nil, nil, err
		}
		closeAll := func() error {
			pool.Close()
			return server.Close()
		}
		if err := migrateRiver(ctx, pool); err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		client, err := p.client(pool, &riverWorker{client: server})
		if err == nil {
			err = client.Start(ctx)
		}
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		write := placeWith(pool, func(ctx context.Context, tx pgx.Tx, n int64) error {
			payload, err := t.payload(n)
			if err != nil {
				return err
			}
			job := riverJob{Stream: t.stream, ID: messageID(n), Type: peerType, Headers: peerHeaders, Payload: string(payload)}
			_, err = client.InsertTx(ctx, tx, job, nil)
			return err
		})
		return write, func() error {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), riverStop)
			defer cancel()
			return errors.Join(client.Stop(stopping), closeAll())
		}, nil
	}
}

func startWatermill(p watermillPeer) func(context.Context, *turn) (writer, func() error, error) {
	return func(ctx context.Context, t *turn) (writer, func() error, error) {
		pool, server, err := t.openPeer(ctx)
		if err != nil {
			return nil, nil, err
		}
		stop, err := p.forward(ctx, pool, server, func() {})
		if err != nil {
			pool.Close()
			return nil, nil, errors.Join(err, server.Close())
		}
		write := placeWith(pool, func(ctx context.Context, tx pgx.Tx, n int64) error {
			publisher, err := p.publisher(watermillsql.TxFromPgx(tx), topicOf(0))
			if err != nil {
				return err
			}
			payload, err := t.payload(n)
			if err != nil {
				return err
			}
			m := message.NewMessageWithContext(ctx, messageID(n), payload)
			m.Metadata.Set("type", peerType)
			m.Metadata.Set("headers", peerHeaders)
			return publisher.Publish(t.stream, m)
		})
		return write, func() error {
			err := stop()
			pool.Close()
			return errors.Join(err, server.Close())
		}, nil
	}
}
