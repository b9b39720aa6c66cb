package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gorm-fanout/fanout/outbox"
)

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
		now, token := s.micros(), settlement.Lease.Token.String()
		n, err := s.markPublished(ctx, conn, published, token, now)
		if err != nil {
			return err
		}
		ids, err := s.markOther(ctx, conn, other, token, now)
		marked = n + len(ids)
		if err == nil && settlement.ParkAbandoned && len(ids) > 0 {
			err = s.parkAbandoned(ctx, conn, ids, now)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &outbox.Settled{Lost: expected - marked}, nil
}

func (s *Store) markPublished(ctx context.Context, conn *sql.Conn, rows []publishedRow, token string, now int64) (int, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return 0, fmt.Errorf("encode outcomes: %w", err)
	}
	result, err := conn.ExecContext(ctx, s.sql.markPublished, sql.Named("rows", string(list)), sql.Named("token", token), sql.Named("now", now))
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// markOther returns the rows that were still ours.
func (s *Store) markOther(ctx context.Context, conn *sql.Conn, rows []otherRow, token string, now int64) ([]int64, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return nil, fmt.Errorf("encode outcomes: %w", err)
	}
	return listIDs(ctx, conn, s.sql.markOther, sql.Named("rows", string(list)), sql.Named("token", token), sql.Named("now", now))
}

// parkAbandoned makes the keys of those rows wait that have just been abandoned.
func (s *Store) parkAbandoned(ctx context.Context, conn *sql.Conn, marked []int64, now int64) error {
	ids := sql.Named("ids", idList(marked))
	if _, err := conn.ExecContext(ctx, s.sql.parkAbandoned, ids, sql.Named("now", now)); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, s.sql.unparkBefore, ids)
	return err
}

// storable replaces what SQLite or JSON cannot hold. Such a text comes from a broker; refusing it would make the outcome
// impossible to write, and the message would be sent for ever.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
}
