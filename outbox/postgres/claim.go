package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/sqlscan"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// claimRows queues the transaction that makes the claim, and the statement that reads what it took;
// or, where the head of the shard is not likely to be simple, the statement that reads the window.
func (x *exchange) claimRows() error {
	c, b := x.claim, x.baseline
	if c == nil {
		return nil
	}
	token, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("make a claim token: %w", err)
	}
	x.token = token
	x.send(nil, begin)
	if c.Wake {
		x.send(x.readBlocks, x.store.sql.blocks, c.Broker, c.Shard, driver.MaxBlocks, driver.MaxDone, driver.MaxFollowers, c.Admits())
	}
	window, lease := c.Window, c.Lease.Microseconds()
	if c.Unordered { // nothing waits for anything
		window = min(window, c.Limit)
	}
	x.sighting.told = !c.Unordered || x.simple && (b.list || b.completed)
	switch {
	case !x.simple:
		x.send(nil, x.store.sql.planSettings)
		x.send(x.readWindow, x.store.sql.window, c.Broker, c.Shard, window, c.Unordered, b.floor, b.version, b.sessions, b.writers, b.above)
	case c.Unordered:
		x.send(nil, x.store.sql.planSettings)
		x.send(x.readHead, x.store.sql.claimUnordered,
			c.Broker, c.Shard, window, c.Worker, pgUUID(token), lease, b.floor, b.version, x.sighting.told, c.Shared, driver.Bound(c.Bytes),
			b.sessions, b.writers, b.above)
	default:
		x.send(nil, x.store.sql.tryLock, shardLock(c.Broker, c.Shard))
		x.send(x.readHead, x.store.sql.claim,
			c.Broker, c.Shard, window, c.Worker, pgUUID(token), lease, b.floor, b.version, c.Shared, driver.Bound(c.Bytes), x.few, b.sessions, b.writers, b.above)
	}
	x.send(nil, "COMMIT")
	if x.simple && !x.few {
		x.fetch()
	}
	if b.list {
		x.send(x.readWriters, x.store.sql.writers)
	}
	return nil
}

// fetch queues the statement that reads what was claimed.
func (x *exchange) fetch() {
	x.send(nil, x.store.sql.planSettings) // for the rest of the round trip
	x.send(x.readMessages, x.store.sql.fetch, x.claim.Broker, x.claim.Shard, pgUUID(x.token), driver.Bound(x.claim.MaxPayload))
}

// fetchLate reads what was claimed in a round trip of its own.
func (x *exchange) fetchLate(ctx context.Context) error {
	late := exchange{store: x.store, claim: x.claim, token: x.token, answer: x.answer}
	late.send(nil, x.store.sql.between, strconv.FormatInt(*x.sighting.first, 10), strconv.FormatInt(x.sighting.last, 10))
	late.fetch()
	err := late.flush(ctx)
	x.answer = late.answer
	return err
}

// headColumns is how many columns of claim.sql say what the claim saw. Where there are more, they
// are those of messages.
const headColumns = 11

// readHead reads what the claim saw, and where few rows were expected and found, what it took.
func (x *exchange) readHead(answers pgx.BatchResults) error {
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	batch := &x.answer.Batch
	targets := make([]any, len(rows.FieldDescriptions())) // the rest is for the server
	for i, field := range []any{
		&batch.Busy, &batch.Seen, &x.wasSimple, &x.sighting.first, &x.sighting.last, &x.sighting.version, &batch.Blocked, &batch.Waiting,
		&x.sighting.session,
	} {
		targets[i] = field
	}
	messages := x.messages(rows, headColumns)
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if values := rows.RawValues(); len(values) > headColumns && values[headColumns] != nil {
			if err := messages.read(rows); err != nil {
				return err
			}
		}
	}
	x.leased()
	return rows.Err()
}

// readWindow reads the rows that the decision is about.
func (x *exchange) readWindow(answers pgx.BatchResults) error {
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	w, session, err := collectWindow(rows, x.claim)
	x.answer.Window = &w
	if n := len(w.Rows); n > 0 {
		x.sighting.first, x.sighting.last = &w.Rows[0].ID, w.Rows[n-1].ID
	}
	x.sighting.version, x.sighting.session = w.Version, session
	x.wasSimple = core.Simple(&w, core.Limits{Rows: x.claim.Limit, Bytes: int64(x.claim.Bytes), PerKey: x.claim.PerKey})
	return err
}

// windowColumns is how many columns window.sql has.
const windowColumns = 11

func collectWindow(rows pgx.Rows, c *driver.Claim) (w driver.Window, session int64, err error) {
	defer rows.Close()
	if raw(rows.FieldDescriptions(), windowTypes[:]) {
		for rows.Next() && err == nil {
			session, err = decodeWindow(&w, rows.RawValues(), c.Window)
		}
		return w, session, errors.Join(err, rows.Err())
	}
	var (
		id, bytes, block *int64
		key              *string
		leased, waits    *bool
		crashes          *int
		message          pgtype.UUID
	)
	_, err = pgx.ForEachRow(rows, []any{&w.Version, &w.Blocked, &session, &id, &key, &leased, &waits, &crashes, &bytes, &block, &message}, func() error {
		if id == nil {
			return nil
		}
		row := driver.Row{
			Ref: driver.Ref{ID: *id, MessageID: message.Bytes}, Key: *key, Leased: *leased, Waits: *waits, Crashes: *crashes, Bytes: *bytes,
		}
		if block != nil {
			row.HasBlock, row.Block = true, *block
		}
		w.Rows = append(w.Rows, row)
		return nil
	})
	return w, session, err
}

// readBlocks reads the blocks that may be lifted.
func (x *exchange) readBlocks(answers pgx.BatchResults) error {
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	x.answer.Blocks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (b driver.BlockState, err error) {
		var (
			id        pgtype.UUID
			followers []int64
			messages  []pgtype.UUID
		)
		err = row.Scan(&x.answer.LiftVersion, &id, &b.ID, &b.Key, &b.HasKey, &b.Due, &b.Done, &b.Waits, &followers, &messages, &b.Scheduled)
		b.MessageID, b.Followers = id.Bytes, driver.ByID(followers)
		for i := range min(len(followers), len(messages)) {
			b.Followers[i].MessageID = messages[i].Bytes
		}
		return b, err
	})
	return err
}

// readWriters reads who may be about to add rows with ids of the past.
func (x *exchange) readWriters(answers pgx.BatchResults) error {
	var (
		names   []string
		numbers []int64
	)
	err := answers.QueryRow().Scan(&names, &numbers)
	x.sighting.listed, x.sighting.writers = true, make(map[string]int64, len(names))
	for i, name := range names[:min(len(names), len(numbers))] {
		x.sighting.writers[name] = numbers[i]
	}
	return err
}

// messageColumns is how many columns fetch.sql has.
const messageColumns = 15

// readMessages reads what was claimed.
func (x *exchange) readMessages(answers pgx.BatchResults) error {
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	messages := x.messages(rows, 0)
	for rows.Next() {
		if err := messages.read(rows); err != nil {
			return err
		}
	}
	x.leased()
	return rows.Err()
}

// leased says under which lease the messages are.
func (x *exchange) leased() {
	batch := &x.answer.Batch
	batch.Lease = driver.Lease{Broker: x.claim.Broker, Shard: x.claim.Shard, Token: x.token, Duration: x.claim.Lease}
	if n := len(batch.Messages); n > 0 {
		batch.Lease.FirstID, batch.Lease.LastID = batch.Messages[0].ID, batch.Messages[n-1].ID
	}
}

// messageReader reads rows of messages straight into a batch: a message has a dozen fields, and there
// are hundreds of them.
type messageReader struct {
	exchange *exchange
	from     int // the first of their columns
	raw      bool
	decoder  decoder
	before   *driver.Message
}

func (x *exchange) messages(rows pgx.Rows, from int) messageReader {
	fields := rows.FieldDescriptions()
	return messageReader{exchange: x, from: from, raw: raw(fields[min(from, len(fields)):], messageTypes[:]), before: &driver.Message{}}
}

// read adds one message.
func (m *messageReader) read(rows pgx.Rows) error {
	batch := &m.exchange.answer.Batch
	if batch.Messages == nil {
		expected := max(1, min(batch.Seen, m.exchange.claim.Limit))
		m.decoder.left = expected
		batch.Messages = make([]driver.Message, 0, expected)
	}
	batch.Messages = append(batch.Messages, driver.Message{})
	message := &batch.Messages[len(batch.Messages)-1]
	before := m.before
	m.before = message
	if m.raw {
		return m.decoder.decode(message, before, rows.RawValues()[m.from:])
	}
	return scan(message, rows, m.from)
}

// scan reads a row that comes as text: where the pool prepares no statements.
func scan(m *driver.Message, rows pgx.Rows, from int) error {
	var (
		id     pgtype.UUID
		unread *int64
	)
	err := rows.Scan(append(make([]any, from), &m.ID, &id, &m.Stream, &m.Type, &m.OrderingKey, &m.Priority, &m.ContentType, &m.Payload, &m.Headers,
		&m.CorrelationID, &m.Attempts, &m.Crashes, &m.CreatedAt, (*sqlscan.Micros)(&m.ExpiresIn), &unread)...)
	m.MessageID = uuid.UUID(id.Bytes).String()
	if unread != nil {
		m.Unread = *unread
	}
	return err
}

// shardLock is the second half of the advisory lock of a shard; the first is the table's oid. The
// shards of all classes that hold the same keys share it, as they share the version that it guards.
func shardLock(broker string, shard int) int32 {
	return hash("shard", strconv.Itoa(shard%outbox.Shards), broker)
}

// hash makes the number of an advisory lock. Two things that share a number only wait for each
// other.
func hash(parts ...string) int32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(strings.Join(parts, "\x00"))) // never fails
	return int32(sum.Sum32())                             //nolint:gosec // any 32 bits will do
}

func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }
