package scenario

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func readSQL(name string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil { // the files are part of the program
		panic(err)
	}
	return string(text)
}

// handChunk is how many messages go to Redis at once.
const handChunk = 100

// hand is a worker as one would write it for this case alone, as fast as can be: it marks a batch
// and claims another one in one round trip and one transaction, and publishes a third one
// meanwhile. It keeps no order, recovers no lease, counts no attempt, and an error ends it.
type hand struct {
	conn        *pgx.Conn
	client      *redis.Client
	send        func(context.Context, []*handSlot) error // instead, where it is not Redis
	claim, mark string
	limit       int
	shards      []int // that had rows so far
	turn        int
	trips       *atomic.Int64
}

// handBatch is a batch in the memory of one that is done.
type handBatch struct {
	places []pgtype.TID // where its rows stand since they were claimed
	texts  []byte       // of all its messages
	slots  []*handSlot
}

// handSlot holds one message, and the arguments of its command, which point to it.
type handSlot struct {
	id, kind, headers, payload string
	ends                       [4]int
	args                       []any
}

// byHand drains with so many workers.
func byHand(workers int) func(context.Context, *setup) error {
	return func(ctx context.Context, s *setup) error {
		var trips atomic.Int64
		group, ctx := errgroup.WithContext(ctx)
		for n := range workers {
			group.Go(func() (err error) {
				conn, err := pgx.Connect(ctx, s.database.URL)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
				h := &hand{conn: conn, client: s.streams.Client, limit: s.Batch, trips: &trips, turn: n, shards: []int{0, 1, 2, 3}}
				if s.elsewhere != nil {
					send, end, err := s.elsewhere.byHand(ctx, s.stream)
					if err != nil {
						return err
					}
					defer func() { err = errors.Join(err, end()) }()
					h.send = send
				}
				table := "own"
				if s.minimal {
					table, h.shards = "minimal", []int{0}
				}
				h.claim, h.mark = driver.RenderSQL(readSQL(table+"_claim"), s.table.Name()), driver.RenderSQL(readSQL(table+"_mark"), s.table.Name())
				return h.run(ctx, s.stream)
			})
		}
		err := group.Wait()
		s.trips = trips.Load()
		return err
	}
}

// run works until nothing is left to claim.
func (h *hand) run(ctx context.Context, stream string) error {
	done, inHand, next := h.batch(stream), h.batch(stream), h.batch(stream)
	for first := true; first || len(done.places)+len(inHand.places) > 0; first = false {
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

func (h *hand) batch(stream string) *handBatch {
	b := &handBatch{slots: make([]*handSlot, h.limit)}
	for i := range b.slots {
		s := new(handSlot)
		s.args = []any{"xadd", stream, "*", "data", &s.payload, "id", &s.id, "type", &s.kind, "headers", &s.headers}
		b.slots[i] = s
	}
	return b
}

// exchange marks one batch and claims another one.
func (h *hand) exchange(ctx context.Context, done, next *handBatch) error {
	next.places, next.texts = next.places[:0], next.texts[:0]
	for {
		var batch pgx.Batch
		if len(done.places) > 0 {
			batch.Queue(h.mark, done.places)
		}
		if len(h.shards) > 0 {
			batch.Queue(h.claim, drainBroker, h.shards[h.turn%len(h.shards)], h.limit)
		}
		if batch.Len() == 0 {
			return nil
		}
		answers := h.conn.SendBatch(ctx, &batch)
		h.trips.Add(1)
		if err := h.read(answers, done, next); err != nil {
			return errors.Join(err, answers.Close())
		}
		if err := answers.Close(); err != nil {
			return err
		}
		done.places = done.places[:0]
		if len(next.places) > 0 || len(h.shards) == 0 {
			h.turn++
			return nil
		}
		shard := h.turn % len(h.shards)
		h.shards = append(h.shards[:shard], h.shards[shard+1:]...) // it is empty
	}
}

func (h *hand) read(answers pgx.BatchResults, done, next *handBatch) error {
	if len(done.places) > 0 {
		tag, err := answers.Exec()
		if err == nil && int(tag.RowsAffected()) != len(done.places) {
			err = fmt.Errorf("scenario: %d of %d rows were marked", tag.RowsAffected(), len(done.places))
		}
		if err != nil {
			return err
		}
	}
	if len(h.shards) == 0 {
		return nil
	}
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		next.add(rows.RawValues())
	}
	next.finish()
	return rows.Err()
}

// add takes a row as it came over the wire: place, id, type, headers, payload.
func (b *handBatch) add(row [][]byte) {
	slot, place := b.slots[len(b.places)], pgtype.TID{Valid: true}
	_ = pgtype.TIDCodec{}.PlanScan(nil, pgtype.TIDOID, pgtype.BinaryFormatCode, &place).Scan(row[0], &place) // six bytes
	b.places = append(b.places, place)
	var text [36]byte
	id, _ := uuid.FromBytes(row[1]) // sixteen bytes
	encoded, _ := id.MarshalText()  // never fails
	copy(text[:], encoded)
	for i, value := range [][]byte{text[:], row[2], row[3], row[4]} {
		b.texts = append(b.texts, value...)
		slot.ends[i] = len(b.texts)
	}
}

// finish makes the texts of all messages in one go.
func (b *handBatch) finish() {
	all, from := string(b.texts), 0
	for i := range b.places {
		s := b.slots[i]
		for n, field := range []*string{&s.id, &s.kind, &s.headers, &s.payload} {
			*field, from = all[from:s.ends[n]], s.ends[n]
		}
	}
}

// publish adds a batch, a chunk at a time.
func (h *hand) publish(ctx context.Context, b *handBatch) error {
	if h.send != nil {
		return h.send(ctx, b.slots[:len(b.places)])
	}
	for at := 0; at < len(b.places); at += handChunk {
		pipe := h.client.Pipeline()
		for _, slot := range b.slots[at:min(at+handChunk, len(b.places))] {
			_ = pipe.Process(ctx, redis.NewStringCmd(ctx, slot.args...)) // it only queues
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
