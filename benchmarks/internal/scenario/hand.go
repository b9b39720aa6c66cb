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
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// readSQL reads a statement on the outbox table.
func readSQL(name string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil { // the files are part of the program
		panic(err)
	}
	return driver.RenderSQL(string(text), outbox.DefaultTable)
}

// message is a row that a loop by hand has read.
type message struct {
	id, kind, headers, payload string
	ends                       [4]int
	xadd                       []any // the command for Redis, which points to the fields
}

// publisher sends messages and returns when all of them are confirmed.
type publisher func(ctx context.Context, messages []*message) error

// hand is a worker on PostgreSQL as one would write it for one case alone, as fast as possible: it
// marks a batch and claims another one in one round trip and one transaction, and publishes a third
// one meanwhile. It keeps no order, recovers no lease, counts no attempt, and an error ends it.
type hand struct {
	conn        *pgx.Conn
	publish     publisher
	claim, mark string
	limit       int
	shards      []int // that had rows so far
	turn        int
	trips       *atomic.Int64
}

// handBatch is a batch in the memory of one that is done.
type handBatch struct {
	places   []pgtype.TID // of its rows since the claim
	texts    []byte       // of all its messages
	messages []*message
}

// openHand connects a worker on one of the tables, "own" or "minimal".
func openHand(ctx context.Context, dsn, table string, limit int, publish publisher) (*hand, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	h := &hand{
		conn: conn, publish: publish, claim: readSQL(table + "_claim"), mark: readSQL(table + "_mark"), limit: limit,
		shards: []int{0, 1, 2, 3}, trips: new(atomic.Int64),
	}
	if table == "minimal" {
		h.shards = []int{0}
	}
	return h, nil
}

func (h *hand) close(ctx context.Context) error { return h.conn.Close(context.WithoutCancel(ctx)) }

// drainByHand drains with so many workers.
func drainByHand(table string, workers int) func(context.Context, *stage) (int, error) {
	return func(ctx context.Context, s *stage) (int, error) {
		var trips atomic.Int64
		group, ctx := errgroup.WithContext(ctx)
		for n := range workers {
			publish, err := s.destination.publisher(ctx, s.stream)
			if err != nil {
				return 0, err
			}
			group.Go(func() (err error) {
				h, err := openHand(ctx, s.DSN, table, s.batch, publish)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, h.close(ctx)) }()
				h.turn, h.trips = n, &trips
				return h.run(ctx)
			})
		}
		err := group.Wait()
		return int(trips.Load()), err
	}
}

// run works until nothing is left to claim.
func (h *hand) run(ctx context.Context) error {
	done, claimed, next := h.batch(), h.batch(), h.batch()
	for first := true; first || len(done.places)+len(claimed.places) > 0; first = false {
		var publishing errgroup.Group
		publishing.Go(func() error { return h.publish(ctx, claimed.messages[:len(claimed.places)]) })
		err := h.exchange(ctx, done, next)
		if err = errors.Join(err, publishing.Wait()); err != nil {
			return err
		}
		done, claimed, next = claimed, next, done
	}
	return nil
}

func (h *hand) batch() *handBatch {
	b := &handBatch{messages: make([]*message, h.limit)}
	for i := range b.messages {
		b.messages[i] = new(message)
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
			batch.Queue(h.claim, broker, h.shards[h.turn%len(h.shards)], h.limit)
		}
		if batch.Len() == 0 {
			return nil
		}
		answers := h.conn.SendBatch(ctx, &batch)
		h.trips.Add(1)
		err := h.read(answers, done, next)
		if err = errors.Join(err, answers.Close()); err != nil {
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
	return next.take(rows)
}

// take reads claimed rows as they come over the wire: place, id, type, headers, payload.
func (b *handBatch) take(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		row := rows.RawValues()
		m, place := b.messages[len(b.places)], pgtype.TID{Valid: true}
		_ = pgtype.TIDCodec{}.PlanScan(nil, pgtype.TIDOID, pgtype.BinaryFormatCode, &place).Scan(row[0], &place) // six bytes
		b.places = append(b.places, place)
		id, _ := uuid.FromBytes(row[1]) // sixteen bytes
		encoded, _ := id.MarshalText()  // never fails
		for i, value := range [][]byte{encoded, row[2], row[3], row[4]} {
			b.texts = append(b.texts, value...)
			m.ends[i] = len(b.texts)
		}
	}
	all, from := string(b.texts), 0
	for i := range b.places {
		m := b.messages[i]
		for n, field := range []*string{&m.id, &m.kind, &m.headers, &m.payload} {
			*field, from = all[from:m.ends[n]], m.ends[n]
		}
	}
	return rows.Err()
}

// drainRowByRow drains as one worker: a statement claims a row, a command publishes it, and a
// statement marks it.
func drainRowByRow(ctx context.Context, s *stage) (_ int, err error) {
	publish, err := s.destination.publisher(ctx, s.stream)
	if err != nil {
		return 0, err
	}
	h, err := openHand(ctx, s.DSN, "own", 1, publish)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.close(ctx)) }()
	none, row := h.batch(), h.batch()
	for {
		if err := h.exchange(ctx, none, row); err != nil || len(row.places) == 0 {
			return int(h.trips.Load()), err
		}
		if err := publish(ctx, row.messages); err != nil {
			return 0, err
		}
		shards := h.shards
		h.shards = nil // so that it only marks
		if err := h.exchange(ctx, row, none); err != nil {
			return 0, err
		}
		h.shards = shards
	}
}

// fillMinimal copies the rows of the outbox into the minimal table.
func fillMinimal(ctx context.Context, s *stage) error {
	return errors.Join(s.Exec(ctx, readSQL("minimal_table")), s.Exec(ctx, readSQL("minimal_fill")))
}
