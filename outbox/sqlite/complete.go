package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// otherRow is how an outcome that is no success travels into a statement.
type otherRow struct {
	ID     int64         `json:"id"`
	Status outbox.Status `json:"status"`
	Spent  int           `json:"spent"`
	Delay  int64         `json:"delay"`
	Error  string        `json:"error"`
}

// complete writes outcomes in a transaction and returns how many rows were still ours.
func (s *Store) complete(ctx context.Context, conn *sql.Conn, completion *driver.Completion) (int, error) {
	other := make([]otherRow, len(completion.Other))
	for i, outcome := range completion.Other {
		other[i] = otherRow{ID: outcome.ID, Status: outcome.Status, Delay: outcome.Delay.Microseconds(), Error: storable(outcome.LastError)}
		if outcome.Spent {
			other[i].Spent = 1
		}
	}
	now, token := s.micros(), completion.Lease.Token.String()
	n, err := s.published(ctx, conn, completion, token, now)
	if err != nil {
		return 0, err
	}
	ids, err := s.markOther(ctx, conn, other, token, now)
	if deferring := deferring(completion, ids); err == nil && len(deferring) > 0 {
		err = s.blockAbandoned(ctx, conn, deferring, now)
	}
	return n + len(ids), err
}

// deferring are those of the rows whose keys are to wait.
func deferring(completion *driver.Completion, marked []int64) (ids []int64) {
	for i := range completion.Other {
		if o := &completion.Other[i]; completion.Blocks(o) && slices.Contains(marked, o.ID) {
			ids = append(ids, o.ID)
		}
	}
	return ids
}

// published marks what was published, or removes it.
func (s *Store) published(ctx context.Context, conn *sql.Conn, completion *driver.Completion, token string, now int64) (int, error) {
	rows := completion.Published
	if len(rows) == 0 {
		return 0, nil
	}
	if completion.DeletePublished {
		ids := make([]int64, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}
		result, err := conn.ExecContext(ctx, s.sql.deletePublished, sql.Named("ids", idList(ids)), sql.Named("token", token))
		if err != nil {
			return 0, err
		}
		n, err := result.RowsAffected()
		return int(n), err
	}
	list, err := deliveredList(rows)
	if err != nil {
		return 0, err
	}
	result, err := conn.ExecContext(ctx, s.sql.markPublished, sql.Named("rows", list), sql.Named("token", token), sql.Named("now", now))
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// deliveredList encodes {"id":"id at the broker"}, an object because SQLite finds its way in one
// flat text faster than in one for each row.
func deliveredList(rows []driver.Delivered) (string, error) {
	list := make([]byte, 0, len(rows)*48)
	for i := range rows {
		list = append(list, ',', '"')
		list = strconv.AppendInt(list, rows[i].ID, 10)
		list = append(list, '"', ':')
		text := rows[i].BrokerMessageID
		if plain(text) {
			list = append(list, '"')
			list = append(list, text...)
			list = append(list, '"')
			continue
		}
		encoded, err := json.Marshal(storable(text))
		if err != nil {
			return "", fmt.Errorf("encode outcomes: %w", err)
		}
		list = append(list, encoded...)
	}
	list[0] = '{'
	return string(append(list, '}')), nil
}

// plain reports a text that stands for itself between the quotes of JSON.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
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

// blockAbandoned makes the keys of those rows wait that have just been abandoned.
func (s *Store) blockAbandoned(ctx context.Context, conn *sql.Conn, marked []int64, now int64) error {
	ids := sql.Named("ids", idList(marked))
	if _, err := conn.ExecContext(ctx, s.sql.blockAbandoned, ids, sql.Named("now", now)); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, s.sql.undeferBefore, ids)
	return err
}

// storable replaces what SQLite or JSON cannot hold. Such a text comes from a broker; refusing it
// would make the outcome impossible to write, and the message would be sent forever.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
}
