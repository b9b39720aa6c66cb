package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// A Queryer runs a query: a *sql.DB, *sql.Tx, *sql.Conn or a pool of GORM's.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// idsAtOnce bounds the parameters of a query.
const idsAtOnce = 100

// Written returns the message ids that have a row that db sees. A published row may have been purged
// since. The query reads the column message_id, which writers may.
func (i *Inserter) Written(ctx context.Context, db Queryer, ids []uuid.UUID) (there []uuid.UUID, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		if there, err = i.appendWritten(ctx, db, there, some); err != nil {
			return nil, fmt.Errorf("outbox: look for messages in %s: %w", i.table, err)
		}
	}
	return there, nil
}

func (i *Inserter) appendWritten(ctx context.Context, db Queryer, there, ids []uuid.UUID) ([]uuid.UUID, error) {
	args := make([]any, len(ids))
	for n, id := range ids {
		args[n] = i.dialect.idArg(id)
	}
	rows, err := db.QueryContext(ctx, i.messagesSQL(false, len(ids)), args...)
	if err != nil {
		return nil, err //nolint:wrapcheck // by Written
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID // it reads text in any case, and bytes
		if err := rows.Scan(&id); err != nil {
			return nil, err //nolint:wrapcheck // by Written
		}
		there = append(there, id)
	}
	return there, rows.Err() //nolint:wrapcheck // by Written
}

// absent counts the rows that are not in the table.
func (i *Inserter) absent(ctx context.Context, db Queryer, rows []Row) (n int, err error) {
	type row struct {
		message uuid.UUID
		broker  string
	}
	there := map[row]bool{}
	look := func(some []Row) error {
		args := make([]any, len(some))
		for k := range some {
			args[k] = i.dialect.idArg(some[k].MessageID)
		}
		found, err := db.QueryContext(ctx, i.messagesSQL(true, len(some)), args...)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var r row
			if err := found.Scan(&r.message, &r.broker); err != nil {
				return err
			}
			there[r] = true
		}
		return found.Err()
	}
	for some := range slices.Chunk(rows, idsAtOnce) {
		if err := look(some); err != nil {
			return 0, err
		}
	}
	for k := range rows {
		if !there[row{rows[k].MessageID, rows[k].TargetBroker}] {
			n++
		}
	}
	return n, nil
}

// messagesSQL finds message ids, with the brokers of their rows where rows is set.
func (i *Inserter) messagesSQL(rows bool, ids int) string {
	column := "CAST(message_id AS char(36))"
	if i.dialect == MySQL {
		column = "message_id"
	}
	var dst []byte
	dst = append(dst, "SELECT DISTINCT "...)
	dst = append(dst, column...)
	if rows {
		dst = append(dst, ", target_broker"...)
	}
	dst = append(dst, " FROM "...)
	dst = append(dst, i.table...)
	dst = append(dst, " WHERE message_id IN ("...)
	for n := range ids {
		if n > 0 {
			dst = append(dst, ", "...)
		}
		dst = i.dialect.idPlaceholder(dst, n+1)
	}
	return string(append(dst, ")"...))
}
