package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
)

// Exchange implements outbox.Store: one transaction for the settlement and one for the claim.
func (s *Store) Exchange(ctx context.Context, settlement *outbox.Settlement, claim *outbox.Claim) (outbox.Exchanged, error) {
	var result outbox.Exchanged
	if settlement != nil {
		settled, err := s.settle(ctx, settlement)
		if err != nil {
			return result, fmt.Errorf("sqlite: settle in %s: %w", s.table, err)
		}
		result.Settled = settled
	}
	if claim != nil {
		batch, err := s.claim(ctx, claim)
		if err != nil {
			return result, fmt.Errorf("sqlite: claim in %s: %w", s.table, err)
		}
		result.Batch = batch
	}
	return result, nil
}

// publishedRow and otherRow are how outcomes travel into one statement.
type publishedRow struct {
	ID              int64  `json:"id"`
	BrokerMessageID string `json:"broker_message_id"`
}

type otherRow struct {
	ID     int64         `json:"id"`
	Status outbox.Status `json:"status"`
	Spent  int           `json:"spent"`
	Delay  int64         `json:"delay"`
	Error  string        `json:"error"`
}

func (s *Store) settle(ctx context.Context, settlement *outbox.Settlement) (*outbox.Settled, error) {
	published := make([]publishedRow, len(settlement.Published))
	for i, delivered := range settlement.Published {
		published[i] = publishedRow{ID: delivered.ID, BrokerMessageID: storable(delivered.BrokerMessageID)}
	}
	other := make([]otherRow, len(settlement.Other))
	for i, outcome := range settlement.Other {
		other[i] = otherRow{ID: outcome.ID, Status: outcome.Status, Delay: outcome.Delay.Microseconds(), Error: storable(outcome.LastError)}
		if outcome.Spent {
			other[i].Spent = 1
		}
	}
	expected := len(published) + len(other)
	if expected == 0 {
		return &outbox.Settled{}, nil
	}
	marked := 0
	err := s.write(ctx, func(conn *sql.Conn) error {
		now, token := sql.Named("now", s.micros()), sql.Named("token", settlement.Lease.Token.String())
		n, err := mark(ctx, conn, s.sql.markPublished, published, token, now)
		if err != nil {
			return err
		}
		m, err := mark(ctx, conn, s.sql.markOther, other, token, now)
		marked = n + m
		return err
	})
	if err != nil {
		return nil, err
	}
	return &outbox.Settled{Lost: expected - marked}, nil
}

func mark[R any](ctx context.Context, conn *sql.Conn, text string, rows []R, args ...any) (int, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return 0, fmt.Errorf("encode outcomes: %w", err)
	}
	result, err := conn.ExecContext(ctx, text, append(args, sql.Named("rows", string(list)))...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// storable is a text without what SQLite or JSON cannot hold.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

func (s *Store) claim(ctx context.Context, c *outbox.Claim) (outbox.Batch, error) {
	batch := outbox.Batch{Lease: outbox.Lease{Broker: c.Broker, Lane: c.Lane, Duration: c.Lease}}
	// An idle outbox costs a read and takes no lock.
	if lanes, err := s.Ready(ctx, c.Broker); err != nil || len(lanes) == 0 || c.Lane != 0 {
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
	slices.SortFunc(batch.Messages, func(a, b outbox.Message) int { return int(a.ID - b.ID) })
	if n := len(batch.Messages); n > 0 {
		batch.Lease.FirstID, batch.Lease.LastID = batch.Messages[0].ID, batch.Messages[n-1].ID
	}
	return batch, nil
}

func readMessages(rows *sql.Rows) ([]outbox.Message, error) {
	defer rows.Close() //nolint:errcheck // Err tells
	var messages []outbox.Message
	for rows.Next() {
		var (
			m       outbox.Message
			created int64
		)
		if err := rows.Scan(&m.ID, &m.MessageID, &m.Stream, &m.Type, &m.OrderingKey, &m.Priority, &m.ContentType, &m.Payload, &m.Headers,
			&m.CorrelationID, &m.Attempts, &m.Crashes, &created, &m.Expired); err != nil {
			return nil, err
		}
		m.CreatedAt = time.UnixMicro(created).UTC()
		messages = append(messages, m)
	}
	return messages, rows.Err()
}

// Renew implements outbox.Store.
func (s *Store) Renew(ctx context.Context, lease outbox.Lease) (int, error) {
	var kept int64
	err := s.write(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, s.sql.renew, sql.Named("broker", lease.Broker), sql.Named("lane", lease.Lane),
			sql.Named("token", lease.Token.String()), sql.Named("first", lease.FirstID), sql.Named("last", lease.LastID),
			sql.Named("now", s.micros()), sql.Named("lease", lease.Duration.Microseconds()))
		if err != nil {
			return err
		}
		kept, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: renew a lease in %s: %w", s.table, err)
	}
	return int(kept), nil
}

// Ready implements outbox.Store.
func (s *Store) Ready(ctx context.Context, broker string) ([]int, error) {
	var ready bool
	if err := s.db.QueryRowContext(ctx, s.sql.ready, sql.Named("broker", broker), sql.Named("now", s.micros())).Scan(&ready); err != nil {
		return nil, fmt.Errorf("sqlite: look for ready rows in %s: %w", s.table, explain(err))
	}
	if ready {
		return []int{0}, nil
	}
	return nil, nil
}
