package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// Insert writes events in a transaction of pgx, as [outbox.Writer.Insert] does in one of database/sql:
//
//	written, err := postgres.Insert(ctx, tx, writer, envelope.NewEvent(OrderPlaced{"42"}).From(order))
//	...
//	err = tx.Commit(ctx)
//	...
//	written.Committed() // wakes relays
//
// Its errors are those, too, and a writer for another database is refused. A transaction begun in
// another one, which is a savepoint, is not known as part of it, and its events are counted from 1:
// pass the outer one, in which statements run at the same place.
func Insert(ctx context.Context, tx pgx.Tx, writer *outbox.Writer, events ...envelope.Event) (*outbox.Written, error) {
	if dialect := writer.Dialect(); dialect != outbox.Postgres && dialect != "" { // "" is for Insert to refuse
		return nil, fmt.Errorf("postgres: insert %d events: the writer is for %s: make one with outbox.WriterConfig{Dialect: outbox.Postgres}",
			len(events), writer.Dialect())
	}
	if tx == nil {
		return writer.Insert(ctx, nil, events...)
	}
	return writer.Insert(ctx, execer{tx}, events...)
}

// execer runs the statements of a writer in a transaction of pgx.
type execer struct{ tx pgx.Tx }

// ExecContext implements outbox.Execer.
func (e execer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := e.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err //nolint:wrapcheck // by the writer
	}
	return result{tag}, nil
}

// Wrapped implements transaction.Wrapper.
func (e execer) Wrapped() any { return e.tx }

// Commit is what writers know a transaction by. The application calls that of its own.
func (execer) Commit() error { return errors.ErrUnsupported }

// result counts the rows of a statement.
type result struct{ pgconn.CommandTag }

// LastInsertId implements sql.Result.
func (result) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }

// RowsAffected implements sql.Result.
func (r result) RowsAffected() (int64, error) { return r.CommandTag.RowsAffected(), nil }
