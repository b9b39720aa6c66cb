package sqlserver

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
)

// resultSets says how to read a row of each result set, by the name of the set's first column. Sets
// of other names, which a trigger on the table may add, are passed over.
type resultSets map[string]func(*sql.Rows) error

// querier is a pool or one connection.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// errIncomplete says that an answer ended early without an error.
var errIncomplete = sqladmin.ErrIncomplete

// query sends one batch and reads its answer to the end, since an error can stand behind the last
// row.
func (s *Store) query(ctx context.Context, text string, args []any, sets resultSets) error {
	return queryOn(ctx, s.db, text, args, sets)
}

func queryOn(ctx context.Context, on querier, text string, args []any, sets resultSets) error {
	rows, err := on.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return read(rows, sets)
}

func read(rows *sql.Rows, sets resultSets) error {
	for more := true; more; more = rows.NextResultSet() {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		var row func(*sql.Rows) error
		if len(columns) > 0 {
			row = sets[columns[0]]
		}
		for rows.Next() {
			if row == nil {
				continue
			}
			if err := row(rows); err != nil {
				return fmt.Errorf("read %s: %w", columns[0], err)
			}
		}
	}
	return rows.Err()
}
