package gormplugin

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/outbox"
)

// insert wraps GORM's INSERT. Of a batch that may leave out rows, for a conflict that does nothing or
// a word such as OR IGNORE, it finds out which elements became rows: those with a key of the application's by that key, the
// others, whose keys the database makes, by their number. Where there are both, they are two
// statements, for the number tells of the others alone.
func (p *Plugin) insert(original func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		if db.Error != nil || !p.concerns(db) || skipped(db) {
			original(db) // which does nothing after an error
			return
		}
		if countsKeys(db) {
			p.insertCounted(db, original)
			return
		}
		var r *readback
		if isSlice(db) && tellsConflicts(db) && insertIsReadApart(db) {
			var err error
			r, err = p.newReadback(db, original)
			_ = db.AddError(err)
		}
		if r == nil {
			returnKeys(db)
			original(db)
			return
		}
		r.insertGroups(r.plan())
	}
}

// returnKeys has an upsert that may find its row by another column than the key read the key back: it
// is that of the row, not the one that the application has given to the aggregate.
func returnKeys(db *gorm.DB) {
	s := db.Statement
	if db.Error != nil || s.Schema == nil || s.SQL.Len() > 0 || !takesRows(s) || !findsByOthers(db) {
		return
	}
	keys := s.Schema.PrimaryFieldDBNames
	var columns []clause.Column
	for _, key := range keys {
		columns = append(columns, clause.Column{Name: key})
	}
	for _, field := range s.Schema.FieldsWithDefaultDBValue {
		if field.Readable && !slices.Contains(keys, field.DBName) {
			columns = append(columns, clause.Column{Name: field.DBName})
		}
	}
	s.AddClause(clause.Returning{Columns: columns})
}

// takesRows reports whether GORM can put what comes back into the value of a statement: a struct that can be
// addressed, or a slice of them.
func takesRows(s *gorm.Statement) bool {
	v := s.ReflectValue
	switch v.Kind() {
	case reflect.Struct:
		return v.CanAddr() && v.Type() == s.Schema.ModelType
	case reflect.Slice, reflect.Array:
		element := v.Type().Elem()
		if element.Kind() == reflect.Pointer {
			element = element.Elem()
		}
		return element == s.Schema.ModelType && (v.Kind() == reflect.Slice || v.CanAddr())
	default:
		return false
	}
}

// findsByOthers reports whether an upsert updates a row that it finds by another column than the key, on a
// database that returns rows, and was not told to.
func findsByOthers(db *gorm.DB) bool {
	conflict, conflicts := conflictOf(db.Statement)
	if _, told := returned(db.Statement); told || !conflicts || leavesOut(conflict) {
		return false
	}
	keys := db.Statement.Schema.PrimaryFieldDBNames
	return slices.Contains([]string{string(outbox.SQLite), string(outbox.Postgres)}, db.Name()) &&
		(conflict.OnConstraint != "" || slices.ContainsFunc(conflict.Columns, func(c clause.Column) bool { return !slices.Contains(keys, c.Name) }))
}

// isSlice reports whether a statement is on a slice of a model.
func isSlice(db *gorm.DB) bool {
	s := db.Statement
	kind := s.ReflectValue.Kind()
	return s.Schema != nil && s.SQL.Len() == 0 && (kind == reflect.Slice || kind == reflect.Array) && s.ReflectValue.Len() > 0
}

// insertIsReadApart reports whether GORM would confuse the elements of a batch.
func insertIsReadApart(db *gorm.DB) bool {
	s := db.Statement
	columns, told := returned(s)
	conflict, conflicts := conflictOf(s)
	n := s.ReflectValue.Len()
	if db.Name() == string(outbox.SQLServer) { // its driver passes over what the application has set in every batch
		set := setByApplication(s)
		return n > 1 && set > 0 && (set < n || leavesOut(conflict))
	}
	if told && readsAll(columns) && (!conflicts || leavesOut(conflict)) {
		return true // GORM makes new elements
	}
	if n == 1 || onlyCounted(db, told) {
		return false // one element is counted correctly
	}
	return ignores(s) || leavesOut(conflict) || conflict.UpdateAll && !updatesSomething(s)
}

// onlyCounted reports whether no rows come back, so that the database alone counts them, which it does
// correctly. Where it can return them, the plugin has it do so.
func onlyCounted(db *gorm.DB, told bool) bool {
	return onMySQL(db) && !told && len(db.Statement.Schema.FieldsWithDefaultDBValue) == 0
}

// tellsConflicts reports whether rows that come back tell which ones a statement has inserted. On
// MySQL they come back whether they were there or not.
func tellsConflicts(db *gorm.DB) bool {
	_, conflicts := conflictOf(db.Statement)
	return !conflicts || !onMySQL(db)
}

func conflictOf(s *gorm.Statement) (conflict clause.OnConflict, ok bool) {
	conflict, ok = s.Clauses["ON CONFLICT"].Expression.(clause.OnConflict)
	return conflict, ok
}

// leavesOut reports whether an INSERT passes over rows that are there.
func leavesOut(conflict clause.OnConflict) bool {
	return conflict.DoNothing || len(conflict.Where.Exprs) > 0
}

// ignores reports whether an INSERT was told to pass over what the database refuses, by words of its own.
func ignores(s *gorm.Statement) bool {
	insert, _ := s.Clauses["INSERT"].Expression.(clause.Insert)
	return slices.Contains(strings.Fields(strings.ToUpper(insert.Modifier)), "IGNORE")
}

// updatesSomething reports whether an upsert of all columns is sure to have one to update. GORM has
// it do nothing when there is none, which is known when the SQL is built.
func updatesSomething(s *gorm.Statement) bool {
	if len(s.Selects) > 0 || len(s.Omits) > 0 {
		return false
	}
	for _, field := range s.Schema.Fields {
		if field.DBName != "" && field.Creatable && field.Updatable && !field.PrimaryKey && !madeByDatabase(field) && field.AutoCreateTime == 0 {
			return true
		}
	}
	return false
}

// setByApplication counts the elements that have a value for something that the database would
// make.
func setByApplication(s *gorm.Statement) (n int) {
	for i := range s.ReflectValue.Len() {
		value := reflect.Indirect(s.ReflectValue.Index(i))
		if !value.IsValid() || value.Type() != s.Schema.ModelType {
			return 0
		}
		if slices.ContainsFunc(s.Schema.FieldsWithDefaultDBValue, func(field *schema.Field) bool {
			_, zero := field.ValueOf(s.Context, value)
			return !zero
		}) {
			n++
		}
	}
	return n
}

// keyTracking is a setting of GORM's that it takes out when it builds an INSERT.
const keyTracking = "gorm:update_track_time"

// insertGroups runs the one or two statements. apart is asked when the SQL is built.
func (r *readback) insertGroups(groups [][]*element, apart func() bool) {
	s := r.db.Statement
	var affected int64
	tracking, tracked := s.Settings.Load(keyTracking)
	for i, group := range groups {
		if i > 0 && tracked {
			s.Settings.Store(keyTracking, tracking)
		}
		begun := time.Now()
		rows, read := r.run(r.slice(group), apart)
		if r.db.Error != nil {
			if i > 0 {
				r.failed()
			}
			return
		}
		switch {
		case read:
			r.settle(group, rows)
		case !apart():
			return // an upsert that leaves out nothing
		default:
			r.all = false // the driver returns nothing
			r.settleByCount(group, r.db.RowsAffected)
		}
		affected += r.db.RowsAffected
		if i < len(groups)-1 {
			r.trace(begun)
			s.SQL.Reset()
			s.Vars = nil
		}
	}
	r.db.RowsAffected = affected
	if s.Result != nil {
		s.Result.RowsAffected = affected
	}
	var rows []*readRow
	for _, e := range r.elements {
		if e.row != nil {
			rows = append(rows, e.row)
		}
	}
	r.finish(append(rows, r.strays...))
}

// plan tells the elements of each statement, and whether its rows are to be read apart, which for
// some is known when the SQL is built.
func (r *readback) plan() (groups [][]*element, apart func() bool) {
	chosen := r.db.Name() == string(outbox.SQLServer)
	r.readKeys(chosen)
	conflict, conflicts := conflictOf(r.db.Statement)
	if leavesOut(conflict) || ignores(r.db.Statement) || chosen {
		return r.byKey(), func() bool { return true }
	}
	return [][]*element{r.elements}, func() bool {
		conflict, _ := conflictOf(r.db.Statement)
		return !conflicts || leavesOut(conflict)
	}
}

// failed is for the second statement of a batch. A single INSERT would have left nothing behind.
func (r *readback) failed() {
	if ours, _ := transactionOf(r.db.Statement.ConnPool); ours != nil {
		ours.journal.Fail(fmt.Errorf("gormplugin: a batch failed when a part of it was written: roll back: %w", r.db.Error))
	}
}

// byKey tells elements with a key of the application's from those whose key the database makes.
func (r *readback) byKey() [][]*element {
	var set, made []*element
	for _, e := range r.elements {
		if _, ok := r.key(e.value, canonical); ok {
			set = append(set, e)
		} else {
			e.unset = true
			made = append(made, e)
		}
	}
	if len(set) == 0 || len(made) == 0 {
		return [][]*element{r.elements}
	}
	return [][]*element{set, made}
}

// slice is one of some elements.
func (r *readback) slice(elements []*element) reflect.Value {
	s := r.db.Statement
	if len(elements) == len(r.elements) {
		return s.ReflectValue
	}
	slice := reflect.New(reflect.SliceOf(reflect.PointerTo(s.Schema.ModelType))).Elem()
	for _, e := range elements {
		slice.Set(reflect.Append(slice, e.value.Addr()))
	}
	return slice
}

// trace logs a statement that another one follows. GORM logs the last one.
func (r *readback) trace(begun time.Time) {
	s := r.db.Statement
	r.db.Logger.Trace(s.Context, begun, func() (string, int64) {
		query, vars := s.SQL.String(), s.Vars
		if filter, ok := r.db.Logger.(gorm.ParamsFilter); ok {
			query, vars = filter.ParamsFilter(s.Context, query, vars...)
		}
		return r.db.Explain(query, vars...), r.db.RowsAffected
	}, r.db.Error)
}
