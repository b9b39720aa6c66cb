package inbox

import (
	"context"
	"database/sql"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/capture"
)

// reserve returns the handle to begin on, and what to call when the transaction has ended, with
// whether its commit has failed.
//
// On SQLite a commit that fails, as where a reader holds the file (without WAL) or a deferred
// foreign key is violated, leaves the transaction open, while database/sql takes it for ended and
// gives the connection to another caller, who sees the message handled, though nothing
// is committed. So there Handle has a connection of its own, and rolls that back before anybody
// gets it. Other databases end a transaction whose commit fails.
func (h *handling) reserve(ctx context.Context) (*gorm.DB, func(failed bool), error) {
	if h.sql.dialect != sqlite {
		return h.handle, func(bool) {}, nil
	}
	pool, err := h.handle.DB()
	if err != nil { // it is the one of db.Connection, or of a pool of its own kind
		return h.handle, func(failed bool) { repair(ctx, h.outside(), failed) }, nil //nolint:nilerr // there is nothing to reserve
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	handle := h.handle.WithContext(h.handle.Statement.Context) //nolint:contextcheck // the same one, with a statement of its own
	handle.Statement.ConnPool = &reserved{conn, pool}
	if hooks, ok := capture.HooksOf(handle); ok {
		handle = hooks.Wrap(handle)
	}
	return handle, func(failed bool) {
		repair(ctx, conn, failed)
		_ = conn.Close() // it goes back to the pool
	}, nil
}

// repair ends what a commit that has failed may have left open. Where it has not, the database's
// complaint is of no interest.
func repair(ctx context.Context, on conn, failed bool) {
	if !failed {
		return
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	_, _ = on.ExecContext(ctx, "ROLLBACK")
}

// reserved is a connection that knows its pool: the capture plugin tells databases apart by that.
type reserved struct {
	*sql.Conn

	pool *sql.DB
}

// GetDBConn implements gorm.GetDBConnector.
func (r *reserved) GetDBConn() (*sql.DB, error) { return r.pool, nil }
