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
// server how it counts, gives elements with keys a statement of their own, and has an upsert that may find rows
// by other columns tell the key of each, in a statement of its own.

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
	r.counted = true
	groups := r.byKey()
	if last := groups[len(groups)-1]; last[0].unset && findsUnseen(db.Statement) {
		groups = groups[:len(groups)-1]
		for i := range last {
			groups = append(groups, last[i:i+1])
		}
	}
	r.insertGroups(groups, func() bool { return true })
}

// findsUnseen reports whether an upsert may find the row of an element without a key.
func findsUnseen(s *gorm.Statement) bool {
	conflict, conflicts := conflictOf(s)
	if !conflicts || leavesOut(conflict) {
		return false
	}
	for _, index := range s.Schema.ParseIndexes() {
		if index.Class == "UNIQUE" && slices.ContainsFunc(index.Fields, func(f schema.IndexOption) bool { return !f.PrimaryKey }) {
			return true
		}
	}
	return slices.ContainsFunc(s.Schema.Fields, func(f *schema.Field) bool { return f.Unique && !f.PrimaryKey })
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

// settleCounted finds out what became of elements that were inserted together.
func (r *readback) settleCounted(group []*element) {
	if r.db.Error == nil {
		_ = r.db.AddError(r.tellCounted(group))
	}
}

func (r *readback) tellCounted(group []*element) error {
	s := r.db.Statement
	whole := s.ReflectValue
	s.ReflectValue = r.slice(group)
	defer func() { s.ReflectValue = whole }()
	written := r.db.RowsAffected
	affected, known, err := r.plugin.changedRows(r.db, true)
	if err != nil {
		return err
	}
	switch n := int64(len(group)); {
	case group[0].unset && n > 1 && written > n: // some were found, by columns that only the database knows
		r.doubt(group, n)
	case !known:
		r.doubt(group, affected)
	default:
		r.settleByCount(group, affected)
		if group[0].unset && affected >= n {
			return r.count(group)
		}
	}
	return nil
}

// count gives new rows the keys that the server has given them, where it does not count as GORM does.
func (r *readback) count(group []*element) error {
	if len(group) == 1 {
		return nil
	}
	s := r.db.Statement
	var step int64
	if err := s.ConnPool.QueryRowContext(s.Context, "SELECT @@auto_increment_increment").Scan(&step); err != nil {
		return fmt.Errorf("gormplugin: ask in which steps the server makes keys: %w", err)
	}
	key := s.Schema.PrioritizedPrimaryField
	if step == key.AutoIncrementIncrement {
		return nil
	}
	first := key.ReflectValueOf(s.Context, group[0].value)
	next, ok := asInt64(first)
	if !ok {
		return nil
	}
	for _, e := range group {
		if err := key.Set(s.Context, e.value, next); err != nil {
			return err //nolint:wrapcheck // GORM's own words
		}
		next += step
	}
	return nil
}

func asInt64(v reflect.Value) (int64, bool) {
	v = reflect.Indirect(v)
	switch {
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(v.Uint()), true //nolint:gosec // a key of MySQL's that GORM has read as one
	default:
		return 0, false
	}
}
