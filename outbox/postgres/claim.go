package postgres

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// How much one claim brings back: blocks that are due; blocks that are done, and followers of each of these. Together they
// stay below the size of a batch or two, so that a claim remains a short transaction.
const (
	wakeLimit     = 500
	advanceBlocks = 10
	advanceRows   = 500
)

// claimRows queues the transaction that makes the claim, and the statement that reads what it took.
func (x *exchange) claimRows() error {
	c := x.claim
	if c == nil {
		return nil
	}
	token, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("make a claim token: %w", err)
	}
	x.token = token
	x.send(nil, begin)
	if !c.Unordered || c.Wake {
		x.send(nil, x.store.sql.tryLock, shardLock(c.Broker, c.Shard))
	}
	if c.Wake {
		x.send(nil, x.store.sql.wake, c.Broker, c.Shard, wakeLimit)
		x.send(nil, x.store.sql.advance, c.Broker, c.Shard, advanceBlocks, advanceRows)
	}
	b := x.baseline
	lease := c.Lease.Microseconds()
	x.sighting.told = !c.Unordered || b.list || b.completed
	switch {
	case x.plain:
		x.send(x.readWindow, x.store.sql.claimPlain,
			c.Broker, c.Shard, c.Window, c.Worker, pgUUID(token), lease, b.floor, b.sibling, b.reopened, c.Shared, bytesOf(c))
	case c.Unordered:
		x.send(nil, x.store.sql.planSettings)
		x.send(x.readWindow, x.store.sql.claimUnordered,
			c.Broker, c.Shard, c.Window, c.Limit, c.Worker, pgUUID(token), lease, b.floor, b.reopened, x.sighting.told, c.Shared, bytesOf(c))
	default:
		x.send(x.readWindow, x.store.sql.claimOrdered,
			c.Broker, c.Shard, c.Window, c.Limit, c.Worker, pgUUID(token), lease, b.floor, b.sibling, b.reopened, c.Shared, bytesOf(c))
	}
	x.send(nil, "COMMIT")
	x.send(nil, x.store.sql.planSettings) // for the rest of the round trip
	x.send(x.readMessages, x.store.sql.fetch, c.Broker, c.Shard, pgUUID(token))
	if b.list {
		x.send(x.readWriters, x.store.sql.writers)
	}
	return nil
}

// bytesOf is how many bytes of payload a claim may take.
func bytesOf(c *driver.Claim) int64 {
	if c.Bytes == 0 {
		return math.MaxInt64
	}
	return int64(c.Bytes)
}

// readWindow reads what the claim saw.
func (x *exchange) readWindow(answers pgx.BatchResults) error {
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		targets := make([]any, len(rows.FieldDescriptions())) // the rest is for the server
		batch := &x.result.Batch
		for i, field := range []any{
			&batch.Busy, &batch.Seen, &batch.Cut, &batch.Waiting, &batch.Blocked, &batch.AheadWaits,
			&x.sighting.first, &x.sighting.last, &x.sighting.reopened, &x.sighting.own, &x.sighting.lowest, &x.wasPlain,
		} {
			targets[i] = field
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// readWriters reads who may be about to add rows with ids of the past.
func (x *exchange) readWriters(answers pgx.BatchResults) error {
	x.sighting.listed = true
	return answers.QueryRow().Scan(&x.sighting.writers)
}

// messageColumns is how many columns fetch.sql has.
const messageColumns = 14

// readMessages reads what was claimed, straight into the batch: a message has a dozen fields, and there are hundreds of them.
func (x *exchange) readMessages(answers pgx.BatchResults) error {
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	batch := &x.result.Batch
	expected := max(1, min(batch.Seen, x.claim.Limit))
	before, decode := &driver.Message{}, scan
	if raw(rows.FieldDescriptions()) {
		d := decoder{left: expected}
		decode = func(m, before *driver.Message, rows pgx.Rows) error { return d.decode(m, before, rows.RawValues()) }
	}
	for rows.Next() {
		if batch.Messages == nil {
			batch.Messages = make([]driver.Message, 0, expected)
		}
		batch.Messages = append(batch.Messages, driver.Message{})
		m := &batch.Messages[len(batch.Messages)-1]
		if err := decode(m, before, rows); err != nil {
			return err
		}
		before = m
	}
	if err := rows.Err(); err != nil {
		return err
	}
	batch.Lease = driver.Lease{Broker: x.claim.Broker, Shard: x.claim.Shard, Token: x.token, Duration: x.claim.Lease}
	if n := len(batch.Messages); n > 0 {
		batch.Lease.FirstID, batch.Lease.LastID = batch.Messages[0].ID, batch.Messages[n-1].ID
	}
	return nil
}

// scan reads a row that comes as text: where the pool prepares no statements.
func scan(m, _ *driver.Message, rows pgx.Rows) error {
	var id pgtype.UUID
	err := rows.Scan(&m.ID, &id, &m.Stream, &m.Type, &m.OrderingKey, &m.Priority, &m.ContentType, &m.Payload, &m.Headers,
		&m.CorrelationID, &m.Attempts, &m.Crashes, &m.CreatedAt, &m.Expired)
	m.MessageID = uuid.UUID(id.Bytes).String()
	return err
}

// shardLock is the second half of the advisory lock of a shard; the first is the table's oid. The shards of all classes that
// hold the same keys share it: what is deferred and brought back concerns all of them.
func shardLock(broker string, shard int) int32 {
	return hash("shard", strconv.Itoa(shard%outbox.Shards), broker)
}

// hash makes the number of an advisory lock. Two things that share a number only wait for each other.
func hash(parts ...string) int32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(strings.Join(parts, "\x00"))) // never fails
	return int32(sum.Sum32())                             //nolint:gosec // any 32 bits will do
}

func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }
