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

	"github.com/gorm-fanout/fanout/outbox"
)

func (s *Store) claim(ctx context.Context, c *outbox.Claim) (outbox.Batch, error) {
	seen, err := s.look(ctx, c)
	if err != nil || !seen.ready && !seen.due {
		return seen.batch, err
	}
	token, err := uuid.NewRandom()
	if err != nil {
		return outbox.Batch{}, fmt.Errorf("make a claim token: %w", err)
	}
	batch := seen.batch
	batch.Lease.Token = token
	err = s.write(ctx, func(conn *sql.Conn) error {
		now := s.micros()
		if seen.due {
			if err := (gates{Store: s, conn: conn, broker: c.Broker, lane: c.Lane, now: now}).stir(ctx); err != nil {
				return err
			}
		}
		text := s.sql.window
		if c.Unordered {
			text = s.sql.windowUnordered
		}
		var ids string
		if err := conn.QueryRowContext(ctx, text, sql.Named("broker", c.Broker), sql.Named("lane", c.Lane), sql.Named("window", c.Window),
			sql.Named("limit", c.Limit), sql.Named("now", now)).
			Scan(&batch.Seen, &batch.Waiting, &batch.Gated, &batch.AheadWaits, &ids); err != nil {
			return err
		}
		if ids == noIDs {
			return nil
		}
		rows, err := conn.QueryContext(ctx, s.sql.claim, sql.Named("ids", ids), sql.Named("worker", c.Worker),
			sql.Named("token", token.String()), sql.Named("now", now), sql.Named("lease", c.Lease.Microseconds()), sql.Named("shared", c.Shared))
		if err != nil {
			return err
		}
		batch.Messages, err = readMessages(rows)
		return err
	})
	if err != nil {
		return outbox.Batch{}, err
	}
	// RETURNING promises no order.
	slices.SortFunc(batch.Messages, func(a, b outbox.Message) int { return cmp.Compare(a.ID, b.ID) })
	if n := len(batch.Messages); n > 0 {
		batch.Lease.FirstID, batch.Lease.LastID = batch.Messages[0].ID, batch.Messages[n-1].ID
	}
	return batch, nil
}

// noIDs is a list of ids, as it travels between statements, that is empty.
const noIDs = "[]"

// glance is what a claim can tell without the lock.
type glance struct {
	batch outbox.Batch // without messages
	ready bool         // a row in the window looks as if it could be claimed
	due   bool         // a gate would move; only where the claim wakes
}

// look tells without a lock whether a claim would find or change anything: an idle outbox costs no more than that.
func (s *Store) look(ctx context.Context, c *outbox.Claim) (glance, error) {
	g := glance{batch: outbox.Batch{Lease: outbox.Lease{Broker: c.Broker, Lane: c.Lane, Duration: c.Lease}}}
	broker, lane, now := sql.Named("broker", c.Broker), sql.Named("lane", c.Lane), sql.Named("now", s.micros())
	err := s.read(ctx, func(rows *sql.Rows) error { return rows.Scan(&g.batch.Gated, &g.due) }, s.sql.lookGates, broker, lane, now)
	g.due = g.due && c.Wake
	if err != nil || g.due { // the lock is needed anyway
		return g, err
	}
	text, args := s.sql.look, []any{broker, lane, now, sql.Named("window", c.Window)}
	if c.Unordered {
		text, args = s.sql.lookUnordered, args[:3] // there is no window
	}
	err = s.read(ctx, func(rows *sql.Rows) error { return rows.Scan(&g.batch.Seen, &g.batch.Waiting, &g.ready) }, text, args...)
	return g, err
}

func readMessages(rows *sql.Rows) (messages []outbox.Message, err error) {
	err = each(rows, func(rows *sql.Rows) error {
		var (
			m       outbox.Message
			created int64
		)
		if err := rows.Scan(&m.ID, &m.MessageID, &m.Stream, &m.Type, &m.OrderingKey, &m.Priority, &m.ContentType, &m.Payload, &m.Headers,
			&m.CorrelationID, &m.Attempts, &m.Crashes, &created, &m.Expired); err != nil {
			return err
		}
		m.MessageID = strings.ToLower(m.MessageID) // plain SQL may have written it in capitals
		m.CreatedAt = time.UnixMicro(created).UTC()
		messages = append(messages, m)
		return nil
	})
	return messages, err
}
