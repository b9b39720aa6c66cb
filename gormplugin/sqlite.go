package gormplugin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
)

// SQLite leaves a transaction open when it refuses to commit it: where a reader is in the way
// (without its write-ahead log), or a deferred constraint is violated. database/sql takes it for
// ended, and gives the connection to another caller, who sees what was not committed and cannot
// begin anything. So a transaction on SQLite keeps its connection until it is known how it has
// ended.

// sqliteConn is what is needed of a *sql.Conn, which callers wrap.
type sqliteConn interface {
	outbox.Execer
	gorm.TxBeginner
	Raw(f func(driverConn any) error) error
}

// keptConn is the connection of a transaction on SQLite. The nil keptConn is that of other
// databases.
type keptConn struct {
	conn sqliteConn
	ours *sql.Conn   // to be given back; nil where the caller has reserved it
	stop func() bool // waiting for the end of the transaction's context
}

// beginKept begins a transaction on SQLite.
func beginKept(ctx context.Context, pool gorm.TxBeginner, options *sql.TxOptions) (*sql.Tx, *keptConn, error) {
	var k keptConn
	switch pool := pool.(type) {
	case *sql.DB:
		conn, err := pool.Conn(ctx)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // GORM is to see what the driver says
		}
		k.conn, k.ours = conn, conn
	case sqliteConn:
		k.conn = pool
	default:
		begun, err := pool.BeginTx(ctx, options)
		return begun, nil, err //nolint:wrapcheck // see above
	}
	begun, err := k.conn.BeginTx(ctx, options)
	if err != nil {
		k.release()
		return nil, nil, err //nolint:wrapcheck // see above
	}
	if k.ours != nil && ctx.Done() != nil {
		// database/sql rolls back by itself, and who has begun by hand may leave it at that.
		k.stop = context.AfterFunc(ctx, func() { _ = k.ours.Close() })
	}
	return begun, &k, nil
}

// release gives the connection back.
func (k *keptConn) release() {
	if k == nil || k.ours == nil {
		return
	}
	if k.stop != nil {
		k.stop()
	}
	_ = k.ours.Close()
}

const repairTime = 10 * time.Second

// repair rolls back what a commit that was refused has left open, or ensures that no one gets the
// connection.
func (k *keptConn) repair(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), repairTime)
	defer cancel()
	if _, err := k.conn.ExecContext(ctx, "ROLLBACK"); err != nil && !strings.Contains(err.Error(), "no transaction is active") {
		_ = k.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// finish commits the transaction that was begun.
func (t *tx) finish() error {
	defer t.kept.release()
	if t.kept != nil {
		err := t.Tx.Commit()
		if err != nil {
			t.kept.repair(t.ctx)
		}
		return err
	}
	inner, ok := t.Tx.(*sql.Tx)
	if !ok || t.inserter.Dialect() != outbox.SQLite {
		return t.Tx.Commit()
	}
	// The connection is not known, for GORM has begun the transaction. The database is asked by a
	// statement, after which database/sql can still roll back; where it has committed, that gets
	// another one to commit.
	if _, err := inner.ExecContext(t.ctx, "COMMIT"); err != nil {
		_ = inner.Rollback() // the refusal is what there is to tell
		return err
	}
	_, _ = inner.ExecContext(t.ctx, "BEGIN")
	_ = inner.Commit() // of nothing, whatever comes of it
	return nil
}

// undo rolls back the transaction that was begun.
func (t *tx) undo() error {
	defer t.kept.release()
	return t.Tx.Rollback()
}
