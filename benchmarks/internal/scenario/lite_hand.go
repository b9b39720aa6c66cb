package scenario

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// liteHand is a worker on SQLite as one would write it for this case alone: one transaction marks a
// batch and claims another one, while a third one is published. It keeps no order, recovers no
// lease, stores no id of the broker, and an error ends it.
type liteHand struct {
	conn        *sql.Conn
	claim, mark string
	limit       int
	publish     func(ctx context.Context, b *liteBatch) error
}

// liteBatch is a batch in memory.
type liteBatch struct {
	token       string
	first, last int64
	messages    []liteMessage
}

type liteMessage struct {
	id, kind, headers string
	payload           []byte
}

// drainByHand works until nothing is left to claim.
func drainByHand(ctx context.Context, s *liteSetup) (err error) {
	conn, err := s.lite.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	h := &liteHand{
		conn: conn, limit: s.Batch, publish: s.handPublish,
		claim: driver.RenderSQL(readSQL("lite_claim"), outbox.DefaultTable), mark: driver.RenderSQL(readSQL("lite_mark"), outbox.DefaultTable),
	}
	done, inHand, next := new(liteBatch), new(liteBatch), new(liteBatch)
	for first := true; first || len(done.messages)+len(inHand.messages) > 0; first = false {
		var publishing errgroup.Group
		publishing.Go(func() error { return h.publish(ctx, inHand) })
		err := h.exchange(ctx, done, next)
		if err = errors.Join(err, publishing.Wait()); err != nil {
			return err
		}
		done, inHand, next = inHand, next, done
	}
	return nil
}

// exchange marks one batch and claims another one.
func (h *liteHand) exchange(ctx context.Context, done, next *liteBatch) (err error) {
	if _, err := h.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, rollback := h.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			err = errors.Join(err, rollback)
		}
	}()
	now := time.Now().UnixMicro()
	if len(done.messages) > 0 {
		marked, err := h.conn.ExecContext(ctx, h.mark, now, now, done.first, done.last, done.token)
		if err != nil {
			return err
		}
		if n, err := marked.RowsAffected(); err != nil || n != int64(len(done.messages)) {
			return errors.Join(err, fmt.Errorf("scenario: %d of %d rows were marked", n, len(done.messages)))
		}
	}
	if err := h.take(ctx, next, now); err != nil {
		return err
	}
	_, err = h.conn.ExecContext(ctx, "COMMIT")
	return err
}

func (h *liteHand) take(ctx context.Context, b *liteBatch, now int64) error {
	b.token, b.messages, b.first, b.last = uuid.NewString(), b.messages[:0], 0, 0
	rows, err := h.conn.QueryContext(ctx, h.claim, b.token, now+time.Minute.Microseconds(), drainBroker, now, h.limit)
	if err != nil {
		return err
	}
	defer rows.Close() // Err tells
	for rows.Next() {
		var (
			id int64
			m  liteMessage
		)
		if err := rows.Scan(&id, &m.id, &m.kind, &m.headers, &m.payload); err != nil {
			return err
		}
		if b.first == 0 || id < b.first {
			b.first = id
		}
		b.last = max(b.last, id)
		b.messages = append(b.messages, m)
	}
	return rows.Err()
}

// toStream adds a batch to a stream of Redis, a chunk at a time.
func (s *liteSetup) toStream(ctx context.Context, b *liteBatch) error {
	for at := 0; at < len(b.messages); at += handChunk {
		pipe := s.streams.Client.Pipeline()
		for _, m := range b.messages[at:min(at+handChunk, len(b.messages))] {
			_ = pipe.Process(ctx, redis.NewStringCmd(ctx, "xadd", s.stream, "*", "data", m.payload, "id", m.id, "type", m.kind, "headers", m.headers)) // it only queues
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// handPublish publishes a batch where this case's messages go.
func (s *liteSetup) handPublish(ctx context.Context, b *liteBatch) error {
	if s.redis {
		return s.toStream(ctx, b)
	}
	for _, m := range b.messages {
		s.arrived = append(s.arrived, m.id)
	}
	return nil
}

// recorder is a broker that confirms everything at once and notes what it got.
type recorder struct {
	confirm

	setup *liteSetup
}

// Publish implements brokers.Broker.
func (r recorder) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	r.setup.mu.Lock()
	for i := range msgs {
		r.setup.arrived = append(r.setup.arrived, msgs[i].ID)
	}
	r.setup.mu.Unlock()
	return r.confirm.Publish(ctx, msgs)
}
