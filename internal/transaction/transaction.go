// Package transaction tells which transaction is behind what an application hands over, and whether
// the capture plugin writes events in it.
package transaction

import (
	"context"
	"database/sql"
	"reflect"
	"runtime"
	"sync"
	"weak"
)

// Captured is a transaction at whose commit the capture plugin writes events.
type Captured interface {
	// CapturesEvents does nothing: it tells such a transaction from others.
	CapturesEvents()
}

// Wrapper is what wraps a transaction in a field that is not exported.
type Wrapper interface {
	// Wrapped is the transaction inside.
	Wrapped() any
}

// lent holds the *sql.Tx that have been taken out of a [Captured] one, while they are in use.
var lent sync.Map //nolint:gochecknoglobals // weak.Pointer[sql.Tx] -> nothing; a *sql.Tx has no room for a mark

// Lend notes that a *sql.Tx was taken out of a [Captured] transaction.
func Lend(tx *sql.Tx) {
	key := weak.Make(tx)
	if _, known := lent.LoadOrStore(key, struct{}{}); !known {
		runtime.AddCleanup(tx, func(key weak.Pointer[sql.Tx]) { lent.Delete(key) }, key)
	}
}

// IsCaptured reports whether the capture plugin writes events in a transaction that [Innermost] has returned.
func IsCaptured(innermost any) bool {
	if tx, ok := innermost.(*sql.Tx); ok {
		_, ok = lent.Load(weak.Make(tx))
		return ok
	}
	_, ok := innermost.(Captured)
	return ok
}

// deepest bounds what wraps what wraps a transaction; a wrapper may hold itself.
const deepest = 8

// Innermost is the transaction behind the wrappers that can be seen through: a [Wrapper], and a struct
// one exported field of which is a transaction, as those of sqlx, bun and GORM's cache of prepared
// statements are.
func Innermost(tx any) any {
	for range deepest {
		var inner any
		switch t := tx.(type) {
		case *sql.Tx, Captured:
			return t
		case Wrapper:
			inner = t.Wrapped()
		default:
			inner = fieldOf(t)
		}
		if inner == nil {
			break
		}
		tx = inner
	}
	return tx
}

// fieldOf is the transaction in an exported field of a struct, nil where there is none or more than one.
func fieldOf(wrapper any) (inner any) {
	v := reflect.Indirect(reflect.ValueOf(wrapper))
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		field := v.Field(i)
		if !v.Type().Field(i).IsExported() || !isReference(field) || field.IsNil() || !isTransaction(field.Interface()) {
			continue
		}
		if inner != nil {
			return nil
		}
		inner = field.Interface()
	}
	return inner
}

func isReference(v reflect.Value) bool {
	return v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface
}

// isTransaction knows those of database/sql and of pgx by what ends them.
func isTransaction(v any) bool {
	switch v.(type) {
	case interface{ Commit() error }, interface {
		Commit(ctx context.Context) error
	}:
		return true
	default:
		return false
	}
}
