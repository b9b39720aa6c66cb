package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"weak"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
)

// A transaction may be begun by SQL text on a connection that db.Connection has reserved: tx.Exec("BEGIN"). Under
// SkipDefaultTransaction GORM writes in it. The plugin would begin one of its own, for a row must not be written without
// its events, and by its commit end the application's. So it notes such texts, and writes events at the statement, as in
// every transaction that it has not begun.

// begun are the connections on which a text has begun a transaction. The zero value is ready to use.
type begun struct{ conns sync.Map } // weak.Pointer[sql.Conn] -> true

// follow notes what a text has done on a connection.
func (b *begun) follow(dialect outbox.Dialect, conn *sql.Conn, text string) {
	key := weak.Make(conn)
	controls, _ := readControl(dialect, text)
	begins := beginsBySQL(dialect, text)
	if begins && dialect == outbox.MySQL && len(controls) > 0 {
		controls = controls[1:] // it ends the one before
	}
	ends := false
	for _, control := range controls {
		ends = ends || control.kind == transactionEnd || control.kind == nestedCommit || control.kind == controlUnknown
	}
	switch {
	case ends:
		b.conns.Delete(key)
	case begins:
		if _, known := b.conns.LoadOrStore(key, true); !known {
			runtime.AddCleanup(conn, func(key weak.Pointer[sql.Conn]) { b.conns.Delete(key) }, key)
		}
	}
}

func (b *begun) on(conn *sql.Conn) bool {
	_, open := b.conns.Load(weak.Make(conn))
	return open
}

// beginsBySQL reports whether the first statement of a text begins a transaction.
func beginsBySQL(dialect outbox.Dialect, text string) bool {
	s := script{lexer: lexer{dialect: dialect, rest: text}}
	s.skip()
	switch first := s.word(); {
	case is(first, "BEGIN"):
		return dialect != outbox.SQLServer || s.beginsTransaction()
	case is(first, "START"):
		return s.accept("TRANSACTION")
	default:
		return false
	}
}

// begunTx is such a transaction for one statement.
type begunTx struct {
	gorm.ConnPool

	parent gorm.ConnPool
}

var _ gorm.Tx = (*begunTx)(nil)

var errBySQL = errors.New("gormplugin: the transaction was begun by an SQL text, and ends by one")

// Commit implements gorm.TxCommitter.
func (*begunTx) Commit() error { return errBySQL }

// Rollback implements gorm.TxCommitter.
func (*begunTx) Rollback() error { return errBySQL }

// StmtContext implements gorm.Tx.
func (*begunTx) StmtContext(_ context.Context, statement *sql.Stmt) *sql.Stmt { return statement }

// GetDBConn implements gorm.GetDBConnector.
func (b *begunTx) GetDBConn() (*sql.DB, error) { return connOf(b.parent) }

// joinBegun has a statement run in the transaction that a text has begun on its connection.
func (p *Plugin) joinBegun(db *gorm.DB) (joined bool) {
	s := db.Statement
	conn, ok := s.ConnPool.(*sql.Conn)
	if !ok || !p.begun.on(conn) {
		return false
	}
	s.Settings.Store(keyBegun{s}, s.ConnPool)
	s.ConnPool = &begunTx{conn, db.ConnPool}
	p.warnUnseen(db)
	return true
}
