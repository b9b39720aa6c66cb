package gormplugin

import (
	"errors"
	"reflect"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/outbox"
)

// On MySQL the number of changed rows says something else than on other databases. An UPDATE that
// changes nothing counts 0, as if the row were gone, unless the DSN says clientFoundRows=true. An
// upsert counts 1 for a row that is new, 2 for one that it has changed, and for one that it has left
// as it was 0, or 1 with clientFoundRows. MariaDB's RETURNING, which GORM uses there for keys of the
// database's, returns a row in each of these cases.

func onMySQL(db *gorm.DB) bool { return db.Name() == string(outbox.MySQL) }

// changedRows is how many rows of a statement's elements were written; known is false where that
// cannot be told.
func (p *Plugin) changedRows(db *gorm.DB, creates bool) (affected int64, known bool, err error) {
	affected = db.RowsAffected
	if !onMySQL(db) || db.Statement.SQL.Len() == 0 {
		return affected, true, nil
	}
	if !creates {
		affected, err = stillThere(db)
		return affected, true, err
	}
	conflict, conflicts := conflictOf(db.Statement)
	if !conflicts {
		return affected, true, nil
	}
	if !leavesOutOnMySQL(conflict) {
		n := int64(elements(db))
		if n == 1 && affected == 1 {
			if found, err := p.countsFoundRows(db); err != nil || !found {
				return n, err == nil, err
			}
		}
		return keysThere(db, n) // each is new, changed, or as it is to be, or another row has been changed that has a value of a unique column
	}
	if affected == 0 {
		return 0, true, nil
	}
	if _, told := returned(db.Statement); told {
		return affected, false, nil
	}
	found, err := p.countsFoundRows(db)
	return affected, !found, err
}

// countsFoundRows reports whether the DSN says clientFoundRows=true. Each pool is asked once.
func (p *Plugin) countsFoundRows(db *gorm.DB) (bool, error) {
	ours, _ := transactionOf(db.Statement.ConnPool)
	var of *pool
	if ours != nil {
		of, _ = ours.parent.(*pool)
	}
	if of != nil {
		if known := of.foundRows.Load(); known != nil {
			return *known, nil
		}
	}
	inserter, err := p.inserterFor(db)
	if err != nil {
		return false, err
	}
	found, err := inserter.CountsFoundRows(db.Statement.Context, db.Statement.ConnPool)
	if err == nil && of != nil {
		of.foundRows.Store(&found)
	}
	return found, err
}

// keysThere is how many of n elements have a row of their key.
func keysThere(db *gorm.DB, n int64) (int64, bool, error) {
	s := db.Statement
	if s.Schema == nil || len(s.Schema.PrimaryFields) == 0 {
		return n, true, nil
	}
	_, values := schema.GetIdentityFieldValuesMap(s.Context, s.ReflectValue, s.Schema.PrimaryFields)
	if len(values) == 0 {
		return n, true, nil // without keys
	}
	column, in := schema.ToQueryValues(clause.CurrentTable, s.Schema.PrimaryFieldDBNames, values)
	query := db.Session(&gorm.Session{NewDB: true, SkipHooks: true, Context: s.Context}).Unscoped().
		Model(reflect.New(s.Schema.ModelType).Interface()).Table(s.Table).Clauses(clause.Where{Exprs: []clause.Expression{clause.IN{Column: column, Values: in}}})
	query.Statement.ConnPool = s.ConnPool
	var found int64
	err := query.Count(&found).Error
	if found == int64(len(values)) {
		found = n // also those that have one key
	}
	return found, true, err
}

// leavesOutOnMySQL reports whether an upsert passes over rows that are there. GORM's driver writes
// that as setting a column to itself, and puts it into the clause. It knows no conditions.
func leavesOutOnMySQL(conflict clause.OnConflict) bool {
	for _, assignment := range conflict.DoUpdates {
		if column, ok := assignment.Value.(clause.Column); !ok || column.Name != assignment.Column.Name || column.Table != assignment.Column.Table {
			return false
		}
	}
	return true
}

// stillThere is the number of rows of an UPDATE that has changed none: those that are as they were
// to be. They have been locked by the UPDATE, so that they cannot have changed since.
func stillThere(db *gorm.DB) (int64, error) {
	s := db.Statement
	where, ok := s.Clauses["WHERE"].Expression.(clause.Where)
	text := s.SQL.String()
	if db.RowsAffected != 0 || !is(text[:min(6, len(text))], "UPDATE") || !ok || s.Schema == nil || len(s.Joins) > 0 {
		return db.RowsAffected, nil
	}
	query := db.Session(&gorm.Session{NewDB: true, SkipHooks: true, Context: s.Context}).Unscoped().
		Model(reflect.New(s.Schema.ModelType).Interface()).Clauses(where)
	query.Statement.ConnPool = s.ConnPool
	if _, through := s.ConnPool.(*throughTx); !through { // GORM's sharding reads no such text, and would look in another table
		query = query.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
	}
	if s.Table != s.Schema.Table {
		query = query.Table(s.Table)
	}
	var n int64
	err := query.Count(&n).Error
	return n, err
}

// endsTransactionOnMySQL reports whether an error is one after which InnoDB has rolled all of the
// transaction back, so that what comes after it is committed statement by statement. maybe: where
// the server is set so. The driver, which is not linked here, writes the number in front.
func endsTransactionOnMySQL(err error) (sure, maybe bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		number, _, ok := strings.Cut(strings.TrimPrefix(err.Error(), "Error "), " ")
		if !ok {
			continue
		}
		switch number {
		case "1213", "1206", "1020": // deadlock, no room for locks, a row that has changed since the snapshot
			return true, false
		case "1205": // lock wait timeout
			return false, true
		}
	}
	return false, false
}
