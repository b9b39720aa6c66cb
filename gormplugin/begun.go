package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
)

// A transaction may be begun by SQL text on a connection that db.Connection has reserved: tx.Exec("BEGIN"). Under
// SkipDefaultTransaction GORM writes in it. The plugin would begin one of its own, for a row must not be written without
// its events, and by its commit end the application's. So it notes such texts, and writes events at the statement, as in
// every transaction that it has not begun.

// begun are the connections on which a text has begun a transaction. The zero value is ready to use.
type begun struct{ conns sync.Map } // weak.Pointer[sql.Conn] -> *atomic.Bool: one is open

// follow notes what a text has done on a connection; err is what it has ended with.
func (b *begun) follow(dialect outbox.Dialect, conn *sql.Conn, text string, err error) {
	for _, opens := range controlOf(dialect, text) {
		switch {
		case opens && err == nil:
			known, there := b.conns.LoadOrStore(weak.Make(conn), new(atomic.Bool))
			known.(*atomic.Bool).Store(true) //nolint:forcetypeassert // the map holds nothing else
			if !there {
				runtime.AddCleanup(conn, func(key weak.Pointer[sql.Conn]) { b.conns.Delete(key) }, weak.Make(conn))
			}
		case !opens && (err == nil || dialect != outbox.SQLite): // where a COMMIT that is refused leaves it open
			b.end(conn)
		}
	}
	if sure, _ := endsTransactionOnMySQL(err); sure {
		b.end(conn)
	}
}

func (b *begun) end(conn *sql.Conn) {
	if known, there := b.conns.Load(weak.Make(conn)); there {
		known.(*atomic.Bool).Store(false) //nolint:forcetypeassert // the map holds nothing else
	}
}

func (b *begun) on(conn *sql.Conn) bool {
	known, there := b.conns.Load(weak.Make(conn))
	return there && known.(*atomic.Bool).Load() //nolint:forcetypeassert // the map holds nothing else
}

// controlOf tells of the statements of a text that begin or end a transaction, in turn, whether one is open after them.
func controlOf(dialect outbox.Dialect, text string) (opens []bool) {
	s := script{lexer: lexer{dialect: dialect, rest: text}}
	for s.next() {
		before := s.lexer
		begins := s.beginsBySQL()
		s.lexer = before
		control := s.statement()
		said := before.rest[:len(before.rest)-len(s.rest)]
		switch {
		case begins:
			opens = append(opens, true)
		case control.kind == transactionEnd:
			opens = append(opens, chains.MatchString(said))
		case control.kind == nestedCommit, control.kind == controlUnknown:
			opens = append(opens, false)
		}
	}
	return opens
}

// chains recognises COMMIT AND CHAIN.
var chains = regexp.MustCompile(`(?i)\bAND\s+CHAIN\b`)

// beginsBySQL reports whether a statement begins a transaction.
func (s *script) beginsBySQL() bool {
	switch first := s.word(); {
	case is(first, "BEGIN"):
		return s.dialect != outbox.SQLServer || s.beginsTransaction()
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
