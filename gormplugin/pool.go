package gormplugin

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// pool is a connection pool whose transactions are ours.
type pool struct {
	gorm.ConnPool // the pool that was there

	plugin   *Plugin
	inserter *outbox.Inserter
	notifier *wakeup.Notifier // nil: no one is notified

	foundRows atomic.Pointer[bool] // see countsFoundRows
}

// wrapPool replaces the handle's pool, inside a PreparedStmtDB where there is one: other code
// asserts that type.
func (p *Plugin) wrapPool(db *gorm.DB, inserter *outbox.Inserter) {
	if prepared, ok := db.ConnPool.(*gorm.PreparedStmtDB); ok {
		if wrapped := p.wrapWith(prepared.ConnPool, inserter); wrapped != nil {
			prepared.ConnPool = wrapped
		}
		return
	}
	wrapped := p.wrapWith(db.ConnPool, inserter)
	if wrapped == nil {
		return
	}
	if db.Statement != nil && db.Statement.ConnPool == db.ConnPool {
		db.Statement.ConnPool = wrapped
	}
	db.ConnPool = wrapped
}

// wrapWith returns our pool around another one, or nil where there is nothing to wrap: it is ours
// already, or it is a transaction of the caller's own.
func (p *Plugin) wrapWith(inner gorm.ConnPool, inserter *outbox.Inserter) gorm.ConnPool {
	switch inner.(type) {
	case *pool, gorm.TxCommitter:
		return nil
	case gorm.TxBeginner, gorm.ConnPoolBeginner:
		return &pool{ConnPool: inner, plugin: p, inserter: inserter, notifier: p.notifierOf(inner, inserter)}
	default:
		return nil
	}
}

// wrap is wrapWith for a pool met on the way, also inside a PreparedStmtDB, which is copied: it
// belongs to others.
func (p *Plugin) wrap(inner gorm.ConnPool, databaseName string) gorm.ConnPool {
	if isOurs(inner) { // also where a session prepares, and so does its handle
		return nil
	}
	dialect, err := outbox.ParseDialect(databaseName)
	if err != nil {
		return nil
	}
	inserter, err := p.inserter(dialect)
	if err != nil {
		return nil
	}
	prepared, ok := inner.(*gorm.PreparedStmtDB)
	if !ok {
		return p.wrapWith(inner, inserter)
	}
	if wrapped := p.wrapWith(prepared.ConnPool, inserter); wrapped != nil {
		return &gorm.PreparedStmtDB{Stmts: prepared.Stmts, Mux: prepared.Mux, ConnPool: wrapped}
	}
	return nil
}

// ExecContext is for statements outside of transactions. What is known before them of those that
// were not seen to end is known forever: a statement may purge rows.
func (p *pool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	p.plugin.outcomes.lookNow(ctx)
	return p.ConnPool.ExecContext(ctx, query, args...)
}

// BeginTx has the signature of gorm.ConnPoolBeginner. On error it returns an untyped nil, which
// GORM compares with nil.
func (p *pool) BeginTx(ctx context.Context, options *sql.TxOptions) (gorm.ConnPool, error) {
	var (
		inner gorm.ConnPool
		kept  *keptConn
		err   error
	)
	p.plugin.outcomes.lookNow(ctx)
	switch beginner := p.ConnPool.(type) {
	case gorm.TxBeginner:
		var begun *sql.Tx
		if p.inserter.Dialect() == outbox.SQLite {
			begun, kept, err = beginKept(ctx, beginner, options)
		} else {
			begun, err = beginner.BeginTx(ctx, options)
		}
		inner = begun
	case gorm.ConnPoolBeginner:
		inner, err = beginner.BeginTx(ctx, options)
	default:
		err = gorm.ErrInvalidTransaction
	}
	if err != nil {
		return nil, err
	}
	if begun, ok := inner.(gorm.Tx); ok {
		t := newTx(ctx, begun, p.plugin, p.inserter, p)
		t.kept = kept
		return t, nil
	}
	return inner, nil
}

// GetDBConn implements gorm.GetDBConnector: db.DB() needs it.
func (p *pool) GetDBConn() (*sql.DB, error) {
	switch inner := p.ConnPool.(type) {
	case *sql.DB:
		return inner, nil
	case gorm.GetDBConnector:
		return inner.GetDBConn()
	default:
		return nil, gorm.ErrInvalidDB
	}
}

// Ping lets gorm.Open check the connection through the wrapper.
func (p *pool) Ping() error {
	if pinger, ok := p.ConnPool.(interface{ Ping() error }); ok {
		return pinger.Ping()
	}
	return nil
}

// limits is the part of *sql.DB that resolvers set through the pool.
type limits interface {
	SetMaxOpenConns(n int)
	SetMaxIdleConns(n int)
	SetConnMaxLifetime(d time.Duration)
	SetConnMaxIdleTime(d time.Duration)
}

func (p *pool) limit(set func(limits)) {
	if inner, ok := p.ConnPool.(limits); ok {
		set(inner)
	} else if db, err := p.GetDBConn(); err == nil {
		set(db)
	}
}

// The setters of the pool stay in reach: a resolver looks for them on the pool itself.

// SetMaxOpenConns forwards to the pool inside.
func (p *pool) SetMaxOpenConns(n int) { p.limit(func(l limits) { l.SetMaxOpenConns(n) }) }

// SetMaxIdleConns forwards to the pool inside.
func (p *pool) SetMaxIdleConns(n int) { p.limit(func(l limits) { l.SetMaxIdleConns(n) }) }

// SetConnMaxLifetime forwards to the pool inside.
func (p *pool) SetConnMaxLifetime(d time.Duration) {
	p.limit(func(l limits) { l.SetConnMaxLifetime(d) })
}

// SetConnMaxIdleTime forwards to the pool inside.
func (p *pool) SetConnMaxIdleTime(d time.Duration) {
	p.limit(func(l limits) { l.SetConnMaxIdleTime(d) })
}
