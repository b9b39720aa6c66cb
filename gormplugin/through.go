package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"gorm.io/gorm"
)

// Other plugins put a pool of their own around that of each statement, as GORM's sharding does. It runs
// the statement; but it knows transactions by *sql.Tx, and takes those of the plugin for a pool: it would
// commit one of the application's after a statement, or begin none. So what it has put there gets the
// plugin around it, which answers for the transaction itself.

// throughPool is a pool that others have put around one of ours.
type throughPool struct {
	gorm.ConnPool // of others

	inner gorm.ConnPool // ours, or GORM's cache of statements around it
}

// BeginTx implements gorm.ConnPoolBeginner.
func (t *throughPool) BeginTx(ctx context.Context, options *sql.TxOptions) (gorm.ConnPool, error) {
	beginner, ok := t.inner.(gorm.ConnPoolBeginner)
	if !ok {
		return nil, gorm.ErrInvalidTransaction
	}
	begun, err := beginner.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return &throughTx{ConnPool: around(t.ConnPool, begun), inner: begun}, nil
}

// GetDBConn implements gorm.GetDBConnector.
func (t *throughPool) GetDBConn() (*sql.DB, error) { return connOf(t.inner) }

// throughTx is what others have put around a transaction of ours.
type throughTx struct {
	gorm.ConnPool // of others

	inner gorm.ConnPool // ours, or GORM's cache of statements around it
}

var _ gorm.Tx = (*throughTx)(nil)

// CapturesEvents implements transaction.Captured.
func (*throughTx) CapturesEvents() {}

// Commit implements gorm.TxCommitter.
func (t *throughTx) Commit() error { return t.transaction(gorm.TxCommitter.Commit) }

// Rollback implements gorm.TxCommitter.
func (t *throughTx) Rollback() error { return t.transaction(gorm.TxCommitter.Rollback) }

func (t *throughTx) transaction(end func(gorm.TxCommitter) error) error {
	if committer, ok := t.inner.(gorm.TxCommitter); ok {
		return end(committer)
	}
	return gorm.ErrInvalidTransaction
}

// StmtContext implements gorm.Tx.
func (t *throughTx) StmtContext(ctx context.Context, statement *sql.Stmt) *sql.Stmt {
	ours, _ := transactionOf(t.inner)
	return ours.StmtContext(ctx, statement)
}

// GetDBConn implements gorm.GetDBConnector.
func (t *throughTx) GetDBConn() (*sql.DB, error) { return connOf(t.inner) }

func connOf(conn gorm.ConnPool) (*sql.DB, error) {
	if connector, ok := conn.(gorm.GetDBConnector); ok {
		return connector.GetDBConn()
	}
	return nil, gorm.ErrInvalidDB
}

// seeThrough runs before each statement, behind what others have registered to run first.
func (p *Plugin) seeThrough(db *gorm.DB) {
	switch db.Statement.ConnPool.(type) {
	case nil, *pool, *tx, *throughPool, *throughTx, *sql.DB, *sql.Tx, *sql.Conn, *gorm.PreparedStmtDB, *gorm.PreparedStmtTX:
		return
	}
	outer, inner := look(db.Statement.ConnPool)
	if inner == nil {
		if hides(db) {
			_ = db.AddError(unseenError(db))
		}
		return
	}
	if ours, _ := transactionOf(inner); ours != nil {
		db.Statement.ConnPool = &throughTx{ConnPool: outer, inner: inner}
	} else {
		db.Statement.ConnPool = &throughPool{ConnPool: outer, inner: inner}
	}
}

// hides reports whether a statement of a handle of ours has the pool of others, of which it cannot be seen
// what is in it and which says that it is a pool and a transaction. It may end one of the application's.
func hides(db *gorm.DB) bool {
	_, begins := db.Statement.ConnPool.(gorm.ConnPoolBeginner)
	_, ends := db.Statement.ConnPool.(gorm.TxCommitter)
	return begins && ends && isOurs(db.ConnPool)
}

func isOurs(conn gorm.ConnPool) bool {
	switch c := conn.(type) {
	case *pool:
		return true
	case *gorm.PreparedStmtDB:
		return isOurs(c.ConnPool)
	default:
		ours, _ := transactionOf(conn)
		return ours != nil
	}
}

// unseenError is why a statement is refused for what is around its pool, or for the pool of the handle.
func unseenError(db *gorm.DB) error {
	conn := db.Statement.ConnPool
	if !isOurs(db.ConnPool) && reflect.TypeOf(conn) == reflect.TypeOf(db.ConnPool) {
		return fmt.Errorf("gormplugin: the handle's pool is a %T, which begins no transactions, so its events could not be written with it: "+
			"give that type a BeginTx as gorm.ConnPoolBeginner has it, or the handle a *sql.DB: %w", conn, errUnseen)
	}
	return fmt.Errorf("gormplugin: the statement's pool is a %T, which another plugin has put around it and in which no transaction can be seen, "+
		"so its events could not be written with it: give that type an exported field of type gorm.ConnPool with the pool in it, or keep that plugin off this handle: %w",
		conn, errUnseen)
}

var errUnseen = errors.New("there is no transaction that the plugin knows")

// look finds one of ours in a pool of others. outer is that pool around it, without what the plugin has put
// between them for an earlier statement. inner is nil where none can be seen.
func look(conn gorm.ConnPool) (outer, inner gorm.ConnPool) {
	switch c := conn.(type) {
	case *throughPool:
		return c.inner, c.inner
	case *throughTx:
		return c.inner, c.inner
	}
	if isOurs(conn) {
		return conn, conn
	}
	within := within(conn)
	if !within.IsValid() {
		return nil, nil
	}
	if outer, inner = look(poolIn(within)); inner == nil {
		return nil, nil
	}
	return with(conn, outer), inner
}

// around is a pool of others, as look returns it, around another one of ours.
func around(conn, inner gorm.ConnPool) gorm.ConnPool {
	if isOurs(conn) {
		return inner
	}
	return with(conn, around(poolIn(within(conn)), inner))
}

// with is a pool of others with another pool in it: a copy, for it belongs to others.
func with(conn, inner gorm.ConnPool) gorm.ConnPool {
	if poolIn(within(conn)) == inner {
		return conn
	}
	copied := reflect.New(reflect.TypeOf(conn).Elem())
	copied.Elem().Set(reflect.ValueOf(conn).Elem())
	pool := poolIn(copied)
	within(pool).Set(reflect.ValueOf(inner))
	return pool
}

func poolIn(v reflect.Value) gorm.ConnPool {
	conn, _ := reflect.TypeAssert[gorm.ConnPool](v)
	return conn
}

// poolFields are where the pools of others have the pools inside of them.
var (
	poolFields sync.Map // reflect.Type -> int, -1 = nowhere
	poolType   = reflect.TypeFor[gorm.ConnPool]()
)

// within is the field of a pool of others in which there is another pool: the zero Value where there is
// none, or more than one.
func within(conn gorm.ConnPool) reflect.Value {
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	v = v.Elem()
	place, known := poolFields.Load(v.Type())
	if !known {
		place = placeOfPool(v.Type())
		poolFields.Store(v.Type(), place)
	}
	if i, _ := place.(int); i >= 0 && !v.Field(i).IsNil() {
		return v.Field(i)
	}
	return reflect.Value{}
}

func placeOfPool(t reflect.Type) int {
	place := -1
	for i := range t.NumField() {
		if field := t.Field(i); field.Type == poolType && field.IsExported() {
			if place >= 0 {
				return -1
			}
			place = i
		}
	}
	return place
}
