package gormplugin

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// MySQL returns one key of an INSERT, not its rows: the first that it has made, or of an upsert that has
// changed rows and made none the last one's. GORM counts on from it, by ones, for each element without a key.
// That holds for new rows, all without keys, where the server counts by ones, too. For others the plugin asks the
// server how it counts, gives elements with keys a statement of their own, and has an upsert that has found rows
// by other columns than the key tell the key of each, in a statement of its own.

// countsKeys reports whether GORM is to count the key of an element of a statement.
func countsKeys(db *gorm.DB) bool {
	s := db.Statement
	if !onMySQL(db) || s.Schema == nil || s.SQL.Len() > 0 || returnsRows(s) || !takesRows(s) {
		return false
	}
	key := s.Schema.PrioritizedPrimaryField
	if key == nil || !key.AutoIncrement || !madeByDatabase(key) {
		return false
	}
	if s.ReflectValue.Kind() == reflect.Struct {
		return isUnset(s, key, s.ReflectValue)
	}
	for i := range s.ReflectValue.Len() {
		if isUnset(s, key, s.ReflectValue.Index(i)) {
			return true
		}
	}
	return false
}

// returnsRows reports whether the database can return the rows of such a statement.
func returnsRows(s *gorm.Statement) bool { return slices.Contains(s.BuildClauses, "RETURNING") }

func isUnset(s *gorm.Statement, field *schema.Field, element reflect.Value) bool {
	element = reflect.Indirect(element)
	if !element.IsValid() {
		return false
	}
	_, zero := field.ValueOf(s.Context, element)
	return zero
}

// insertCounted runs an INSERT whose keys GORM is to count.
func (p *Plugin) insertCounted(db *gorm.DB, original func(*gorm.DB)) {
	if elements(db) == 1 {
		insertOne(db, original)
		return
	}
	r, err := p.newReadback(db, func(db *gorm.DB) {
		if elements(db) == 1 {
			insertOne(db, original)
		} else {
			original(db)
		}
	})
	_ = db.AddError(err)
	if r == nil {
		original(db) // which does nothing after an error
		return
	}
	(&countedBatch{readback: r}).insert(r.byKey())
}

// updatesRows reports whether an INSERT may change rows that are there.
func updatesRows(s *gorm.Statement) bool {
	conflict, conflicts := conflictOf(s)
	return conflicts && !leavesOut(conflict)
}

// insertOne is for one element. An upsert that has nothing to change tells no key, unless it is
// asked for; and GORM does not read the key where it counts no row.
func insertOne(db *gorm.DB, original func(*gorm.DB)) {
	s := db.Statement
	asking := &keyReader{ConnPool: s.ConnPool, db: db}
	s.ConnPool = asking
	defer func() { s.ConnPool = asking.ConnPool }()
	original(db)
	element := s.ReflectValue
	if element.Kind() != reflect.Struct {
		element = reflect.Indirect(element.Index(0))
	}
	if key := s.Schema.PrioritizedPrimaryField; db.Error == nil && asking.id > 0 && isUnset(s, key, element) {
		_ = db.AddError(key.Set(s.Context, element, asking.id))
	}
}

// keyReader is the connection of one statement: an upsert is to tell the key of the row that it has found.
type keyReader struct {
	gorm.ConnPool

	db *gorm.DB
	id int64 // 0 where it is not known
}

// ExecContext implements gorm.ConnPool.
func (k *keyReader) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	asks := k.ask()
	if asks {
		query = k.db.Statement.SQL.String()
	}
	result, err := k.ConnPool.ExecContext(ctx, query, args...)
	if err == nil && asks {
		k.id, _ = result.LastInsertId()
	}
	return result, err
}

// ask makes the key one of the columns that an upsert sets, to what it is.
func (k *keyReader) ask() bool {
	s := k.db.Statement
	conflict, conflicts := conflictOf(s)
	if !conflicts || leavesOutOnMySQL(conflict) {
		return false
	}
	key := s.Schema.PrioritizedPrimaryField.DBName
	for _, assignment := range conflict.DoUpdates {
		if assignment.Column.Name == key {
			return true // the application does so itself
		}
	}
	column := s.Quote(key)
	fmt.Fprintf(&s.SQL, ",%s=LAST_INSERT_ID(%s)", column, column)
	return true
}
