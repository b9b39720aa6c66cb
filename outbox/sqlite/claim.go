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
	batch := outbox.Batch{Lease: outbox.Lease{Broker: c.Broker, Lane: c.Lane, Duration: c.Lease}}
	ready, err := s.look(ctx, c, &batch.Seen)
	if err != nil || !ready {
		return batch, err
	}
	token, err := uuid.NewRandom()
	if err != nil {
		return batch, fmt.Errorf("make a claim token: %w", err)
	}
	batch.Lease.Token = token
	err = s.write(ctx, func(conn *sql.Conn) error {
		now := s.micros()
		text := s.sql.window
		if c.Unordered {
			text = s.sql.windowUnordered
		}
		var ids string
		if err := conn.QueryRowContext(ctx, text, sql.Named("broker", c.Broker), sql.Named("lane", c.Lane), sql.Named("window", c.Window),
			sql.Named("limit", c.Limit), sql.Named("now", now)).Scan(&batch.Seen, &ids); err != nil {
			return err
		}
		if ids == "[]" {
			return nil
		}
		rows, err := conn.QueryContext(ctx, s.sql.claim, sql.Named("ids", ids), sql.Named("worker", c.Worker),
			sql.Named("token", token.String()), sql.Named("now", now), sql.Named("lease", c.Lease.Microseconds()))
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

// look reads whether a claim would find a row that is ready, without a lock: an idle outbox costs no more than that. seen
// is the number of rows in the window.
func (s *Store) look(ctx context.Context, c *outbox.Claim, seen *int) (ready bool, err error) {
	if c.Unordered { // there is no window
		lanes, err := s.Ready(ctx, c.Broker)
		return len(lanes) > 0, err
	}
	err = s.read(ctx, func(rows *sql.Rows) error { return rows.Scan(seen, &ready) },
		s.sql.look, sql.Named("broker", c.Broker), sql.Named("lane", c.Lane), sql.Named("window", c.Window), sql.Named("now", s.micros()))
	return ready, err
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
