// Package sqltx runs a function in a transaction of database/sql.
package sqltx

import (
	"context"
	"database/sql"
	"errors"
)

// A Beginner is a *sql.DB or a *sql.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// Run runs f in a transaction, which is rolled back where f fails or panics.
//
// A transaction whose context ends is rolled back behind its back. From then on database/sql says
// that it "has already been committed or rolled back"; Run says why.
func Run(ctx context.Context, db Beginner, options *sql.TxOptions, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	if err = f(tx); err == nil {
		err = tx.Commit()
	}
	if ctx.Err() != nil && errors.Is(err, sql.ErrTxDone) {
		return ctx.Err()
	}
	return err
}
