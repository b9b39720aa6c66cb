package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/sqlscan"
	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// claim claims without a completion. It looks first, without the lock.
func (s *Store) claim(ctx context.Context, c *driver.Claim) (driver.Batch, error) {
	if c.Ahead == 0 {
		seen, err := s.look(ctx, c)
		if err != nil || !seen.ready && !seen.due {
			return seen.batch, err
		}
	}
	batch := emptyBatch(c)
	if err := s.write(ctx, func(conn *sql.Conn) error { return s.claimIn(ctx, conn, c, &batch) }); err != nil {
		return driver.Batch{}, err
	}
	return batch, nil
}

// claimIn claims in a transaction.
func (s *Store) claimIn(ctx context.Context, conn *sql.Conn, c *driver.Claim, batch *driver.Batch) error {
	exchanged, err := claims.Exchange(ctx, transaction{s, conn, s.micros()}, nil, c)
	*batch = exchanged.Batch
	return err
}

// A transaction is the store as claims use it. It holds the lock of the whole database, so nothing
// that was decided about changes meanwhile, and there are no versions.
type transaction struct {
	*Store

	conn *sql.Conn
	now  int64
}

// Exchange implements claims.Store.
func (x transaction) Exchange(ctx context.Context, _ *driver.Completion, c *driver.Claim) (answer claims.Answer, err error) {
	answer.Batch = emptyBatch(c)
	if c.Wake {
		if answer.Blocks, err = x.blocks(ctx, c); err != nil {
			return answer, err
		}
	}
	if answer.Batch.Lease.Token, err = uuid.NewRandom(); err != nil {
		return answer, fmt.Errorf("make a claim token: %w", err)
	}
	taken := false
	if c.PerKey == 0 {
		taken, err = x.takeHead(ctx, x.conn, c, x.now, &answer.Batch)
	}
	if err == nil && !taken {
		reading := *c
		if c.Unordered {
			reading.Window = min(c.Window, c.Limit)
		}
		var w driver.Window
		w, err = x.window(ctx, &reading, c.Unordered)
		answer.Window = &w
		if err == nil && c.Unordered && len(w.Rows) < reading.Window { // rows that were read in vain
			err = x.conn.QueryRowContext(ctx, x.sql.waiting, sql.Named("broker", c.Broker), sql.Named("shard", c.Shard), sql.Named("now", x.now)).
				Scan(&answer.Batch.Waiting)
		}
	}
	finish(&answer.Batch)
	return answer, err
}

// Window implements claims.Store. Of a claim without order it reads what waits, too.
func (x transaction) Window(ctx context.Context, c *driver.Claim) (driver.Window, error) {
	if c.Ahead > 0 {
		return x.readWindow(ctx, x.sql.ahead, c, sql.Named("ahead", min(c.Ahead, maxAhead)), sql.Named("near", driver.MaxNear),
			sql.Named("per_key", c.PerKey))
	}
	return x.window(ctx, c, false)
}

// maxAhead bounds how many rows a claim passes over, since it has the lock of the database meanwhile.
const maxAhead = 100_000

func (x transaction) window(ctx context.Context, c *driver.Claim, ready bool) (driver.Window, error) {
	return x.readWindow(ctx, x.sql.window, c, sql.Named("unordered", ready))
}

func (x transaction) readWindow(ctx context.Context, text string, c *driver.Claim, more ...any) (w driver.Window, err error) {
	rows, err := x.conn.QueryContext(ctx, text,
		append(more, sql.Named("broker", c.Broker), sql.Named("shard", c.Shard), sql.Named("window", c.Window), sql.Named("now", x.now))...)
	if err != nil {
		return w, err
	}
	err = each(rows, func(rows *sql.Rows) error {
		var (
			id, crashes, bytes, block sql.NullInt64
			key                       string
			leased, waits             sql.NullBool
		)
		if err := rows.Scan(&w.Blocked, &id, &key, &leased, &waits, &crashes, &bytes, &block); err != nil {
			return err
		}
		if id.Valid {
			w.Rows = append(w.Rows, driver.Row{
				Ref: driver.Ref{ID: id.Int64}, Key: key, Leased: leased.Bool, Waits: waits.Bool, Crashes: int(crashes.Int64), Bytes: bytes.Int64,
				HasBlock: block.Valid, Block: block.Int64,
			})
		}
		return nil
	})
	return w, err
}

// Take implements claims.Store.
func (x transaction) Take(ctx context.Context, c *driver.Claim, choice *driver.Choice) (driver.Batch, error) {
	batch := emptyBatch(c)
	token, err := uuid.NewRandom()
	if err != nil {
		return batch, fmt.Errorf("make a claim token: %w", err)
	}
	batch.Lease.Token = token
	rows, err := x.conn.QueryContext(ctx, x.sql.claim, sql.Named("ids", idList(driver.IDs(choice.Rows))), sql.Named("worker", c.Worker),
		sql.Named("token", token.String()), sql.Named("now", x.now), sql.Named("lease", c.Lease.Microseconds()), sql.Named("shared", c.Shared),
		sql.Named("most", driver.Bound(c.MaxPayload)))
	if err != nil {
		return batch, err
	}
	batch.Messages, err = readMessages(rows, len(choice.Rows))
	finish(&batch)
	return batch, err
}

// finish puts the rows of a batch into their order, for RETURNING promises none.
func finish(batch *driver.Batch) {
	slices.SortFunc(batch.Messages, func(a, b driver.Message) int { return cmp.Compare(a.ID, b.ID) })
	if n := len(batch.Messages); n > 0 {
		batch.Lease.FirstID, batch.Lease.LastID = batch.Messages[0].ID, batch.Messages[n-1].ID
	}
}

// takeHead claims the first rows of the shard where nothing holds any of them back, by three short
// statements, of which the first also finds that the shard is empty.
func (s *Store) takeHead(ctx context.Context, conn *sql.Conn, c *driver.Claim, now int64, batch *driver.Batch) (taken bool, err error) {
	window := c.Window
	if c.Unordered {
		window = min(c.Window, c.Limit)
	}
	var (
		last   int64
		simple bool
	)
	err = conn.QueryRowContext(ctx, s.sql.head, sql.Named("broker", c.Broker), sql.Named("shard", c.Shard), sql.Named("window", window),
		sql.Named("take", min(c.Limit, window)), sql.Named("bytes", driver.Bound(c.Bytes)), sql.Named("now", now)).
		Scan(&batch.Seen, &simple, &batch.Blocked, &last)
	if err != nil || !simple || batch.Seen == 0 {
		return simple, err
	}
	if c.Wake && batch.Blocked { // scheduled rows are admitted first where not all of the window can be taken
		return false, nil
	}
	broker, shard, upTo, at := sql.Named("broker", c.Broker), sql.Named("shard", c.Shard), sql.Named("last", last), sql.Named("now", now)
	rows, err := conn.QueryContext(ctx, s.sql.readHead, broker, shard, upTo, at, sql.Named("most", driver.Bound(c.MaxPayload)))
	if err != nil {
		return false, err
	}
	if batch.Messages, err = readMessages(rows, min(batch.Seen, c.Limit)); err != nil {
		return false, err
	}
	result, err := conn.ExecContext(ctx, s.sql.claimHead, broker, shard, upTo, at, sql.Named("worker", c.Worker),
		sql.Named("token", batch.Lease.Token.String()), sql.Named("lease", c.Lease.Microseconds()),
		sql.Named("isolated", !c.Shared && len(batch.Messages) == 1))
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(len(batch.Messages)) {
		return false, cmp.Or(err, fmt.Errorf("%d of %d rows were claimed", n, len(batch.Messages)))
	}
	batch.Cut = len(batch.Messages) < min(batch.Seen, c.Limit)
	return true, nil
}

func emptyBatch(c *driver.Claim) driver.Batch {
	return driver.Batch{Lease: driver.Lease{Broker: c.Broker, Shard: c.Shard, Duration: c.Lease}}
}

// glance is what a claim can tell without the lock.
type glance struct {
	batch driver.Batch // without messages
	ready bool         // a row in the window looks as if it could be claimed
	due   bool         // a block would move; only where the claim wakes
}

// look tells without a lock whether a claim would find or change anything: an idle outbox costs no
// more than that.
func (s *Store) look(ctx context.Context, c *driver.Claim) (glance, error) {
	g := glance{batch: emptyBatch(c)}
	broker, shard, now := sql.Named("broker", c.Broker), sql.Named("shard", c.Shard), sql.Named("now", s.micros())
	err := s.read(ctx, func(rows *sql.Rows) (err error) { g.batch.Blocked, g.due, err = scanBlocks(rows); return err }, s.sql.lookBlocks, broker, shard, now)
	g.due = g.due && c.Wake
	if err != nil || g.due { // the lock is needed anyway
		return g, err
	}
	text, args := s.sql.look, []any{broker, shard, now, sql.Named("window", c.Window)}
	if c.Unordered {
		text, args = s.sql.lookUnordered, args[:3] // there is no window
	}
	err = s.read(ctx, func(rows *sql.Rows) error { return rows.Scan(&g.batch.Seen, &g.batch.Waiting, &g.ready) }, text, args...)
	return g, err
}

// scanBlocks reads what look_blocks.sql answers.
func scanBlocks(row interface{ Scan(values ...any) error }) (blocked, due bool, err error) {
	err = row.Scan(&blocked, &due)
	return blocked, due, err
}

func readMessages(rows *sql.Rows, expected int) (messages []driver.Message, err error) {
	messages = make([]driver.Message, 0, expected)
	var created int64
	err = each(rows, func(rows *sql.Rows) error {
		messages = append(messages, driver.Message{})
		m := &messages[len(messages)-1]
		if err := rows.Scan(&m.ID, &m.MessageID, &m.Stream, &m.Type, &m.OrderingKey, (*sqlscan.Int)(&m.Priority), &m.ContentType, &m.Payload, &m.Headers,
			&m.CorrelationID, (*sqlscan.Int)(&m.Attempts), (*sqlscan.Int)(&m.Crashes), &created, (*sqlscan.Micros)(&m.ExpiresIn), &m.Unread); err != nil {
			return err
		}
		m.MessageID = strings.ToLower(m.MessageID) // plain SQL may have written it in capitals
		m.CreatedAt = time.UnixMicro(created).UTC()
		return nil
	})
	return messages, err
}
