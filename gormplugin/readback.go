package gormplugin

import (
	"context"
	"database/sql"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/internal/journal"
	"github.com/gorm-fanout/fanout/outbox"
)

// What statements on slices read back from the database, by RETURNING or OUTPUT. GORM hands row 1
// to element 1, row 2 to element 2 and so on, whichever elements the rows are of, and counts
// elements that it passes over as rows. Where this matters, the plugin has it scan the rows into a
// slice of their own, and brings rows and elements together by their keys.

// outcome is what became of the aggregates of a statement of which the number of changed rows does
// not tell.
type outcome struct {
	written, missed, unknown []found
	affected                 int64 // how many of the unknown were written
}

// readback is a statement on a slice whose rows are read back.
type readback struct {
	plugin   *Plugin
	db       *gorm.DB
	original func(*gorm.DB) // GORM's own callback
	keys     []*schema.Field
	keyed    bool            // the keys are read back
	fields   []*schema.Field // that are read back
	all      bool            // GORM makes new elements of the rows
	elements []*element
	strays   []*readRow // of unknown owner
	affected int64      // how many rows of elements that cannot be distinguished were written
}

// element is one of the slice that a statement is on.
type element struct {
	value     reflect.Value // the struct
	found     found
	aggregate bool
	unset     bool     // the database is to make its key
	row       *readRow // nil where it has none
	written   bool
	doubtful  bool // it may have been written
}

// readRow is a row that came back.
type readRow struct {
	value   reflect.Value // the struct
	owner   *element
	inOrder bool // it is the owner's by its place, not by its key
}

// rowReader is the connection of one statement: when rows come back, GORM finds another slice to
// put them in.
type rowReader struct {
	gorm.ConnPool

	before func()
}

// QueryContext implements gorm.ConnPool.
func (r *rowReader) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	r.before()
	return r.ConnPool.QueryContext(ctx, query, args...)
}

// newReadback collects the elements of the slice that a statement is on. It returns nil where GORM
// would object to them, or could not change them.
func (p *Plugin) newReadback(db *gorm.DB, original func(*gorm.DB)) (*readback, error) {
	s := db.Statement
	r := &readback{plugin: p, db: db, original: original, keys: s.Schema.PrimaryFields}
	for i := range s.ReflectValue.Len() {
		value := reflect.Indirect(s.ReflectValue.Index(i))
		if !value.IsValid() || !value.CanAddr() || value.Type() != s.Schema.ModelType {
			return nil, nil //nolint:nilnil // there is nothing to do, and nothing wrong
		}
		e := &element{value: value}
		aggregates, err := p.aggregates(db, value.Addr().Interface())
		if err != nil {
			return nil, err
		}
		if len(aggregates) > 0 {
			e.found, e.aggregate = aggregates[0], true
		}
		r.elements = append(r.elements, e)
	}
	return r, nil
}

// readKeys has the keys read back with the rest. A driver that chooses the columns itself reads
// what the database makes.
func (r *readback) readKeys(byDriver bool) {
	s := r.db.Statement
	columns, told := returned(s)
	if told && readsAll(columns) && !byDriver {
		r.fields, r.all, r.keyed = s.Schema.Fields, true, true
		return
	}
	if !told || byDriver {
		columns = nil
		for _, field := range s.Schema.FieldsWithDefaultDBValue {
			if field.Readable {
				columns = append(columns, clause.Column{Name: field.DBName})
			}
		}
	}
	r.keyed = true
	for _, key := range r.keys {
		if slices.ContainsFunc(columns, func(c clause.Column) bool { return s.Schema.LookUpField(c.Name) == key }) {
			continue
		}
		if byDriver {
			r.keyed = false
		} else {
			columns = append(slices.Clip(columns), clause.Column{Name: key.DBName})
		}
	}
	for _, column := range columns {
		if field := s.Schema.LookUpField(column.Name); field != nil {
			r.fields = append(r.fields, field)
		}
	}
	if !byDriver {
		s.Clauses["RETURNING"] = clause.Clause{Name: "RETURNING", Expression: clause.Returning{Columns: columns}}
	}
}

// run runs the statement on a slice of elements. It returns the rows that were read apart; ok is
// false where none were. apart is asked when the SQL is built.
func (r *readback) run(elements reflect.Value, apart func() bool) (rows []*readRow, ok bool) {
	s := r.db.Statement
	into := reflect.New(reflect.SliceOf(reflect.PointerTo(s.Schema.ModelType))).Elem()
	whole, conn := s.ReflectValue, s.ConnPool
	defer func() { s.ReflectValue, s.ConnPool = whole, conn }() // a panic must find the transaction there
	s.ReflectValue = elements
	s.ConnPool = &rowReader{conn, func() {
		if ok = apart(); ok {
			s.ReflectValue = into
		}
	}}
	r.original(r.db)
	for i := range into.Len() {
		rows = append(rows, &readRow{value: into.Index(i).Elem()})
	}
	return rows, ok
}

// settle finds out which of the elements that were inserted the rows are of. They come back in the
// order of the elements.
func (r *readback) settle(elements []*element, rows []*readRow) {
	r.match(elements, rows, true)
	open, strays := unmatched(elements, rows)
	if len(strays) == len(open) { // all were written
		for i, e := range open {
			strays[i].inOrder = true
			strays[i].of(e)
		}
		return
	}
	r.settleStrays(open, strays)
}

// settleChanged finds out which of the elements that were to be changed the rows are of. Elements
// without a key had none.
func (r *readback) settleChanged(rows []*readRow) {
	r.match(r.elements, rows, false)
	open, strays := unmatched(r.elements, rows)
	r.settleStrays(slices.DeleteFunc(open, func(e *element) bool { return e.found.facts != nil && e.found.key(r.db) == "" }), strays)
}

func unmatched(elements []*element, rows []*readRow) (open []*element, strays []*readRow) {
	open = slices.DeleteFunc(slices.Clone(elements), func(e *element) bool { return e.row != nil })
	strays = slices.DeleteFunc(slices.Clone(rows), func(row *readRow) bool { return row.owner != nil })
	return open, strays
}

// settleStrays notes rows of which it is not known to which of some elements they belong.
func (r *readback) settleStrays(open []*element, strays []*readRow) {
	r.strays = append(r.strays, strays...)
	r.doubt(open, int64(len(strays)))
}

// doubt notes that some elements were written, and that it is not known which.
func (r *readback) doubt(open []*element, written int64) {
	if len(open) > 0 {
		r.affected += written
	}
	for _, e := range open {
		e.doubtful = written > 0
	}
}

func (row *readRow) of(e *element) {
	row.owner, e.row, e.written = e, row, true
}

// settleByCount is for a statement that has read nothing back.
func (r *readback) settleByCount(elements []*element, affected int64) {
	if affected < int64(len(elements)) {
		r.doubt(elements, affected)
		return
	}
	for _, e := range elements {
		e.written = true
	}
}

// match gives rows to the elements that have their keys. once: of two with one key, the first has
// been inserted, while a row that was changed is that of both.
func (r *readback) match(elements []*element, rows []*readRow, once bool) {
	for _, form := range []func(string) string{func(text string) string { return text }, canonical} {
		if !r.keyed || !slices.ContainsFunc(rows, func(row *readRow) bool { return row.owner == nil }) {
			return
		}
		byKey := make(map[string][]*element)
		for _, e := range elements {
			if key, ok := r.key(e.value, form); ok && e.row == nil {
				byKey[key] = append(byKey[key], e)
			}
		}
		for _, row := range rows {
			key, ok := r.key(row.value, form)
			if !ok || row.owner != nil || len(byKey[key]) == 0 {
				continue
			}
			those := byKey[key]
			if once {
				those = those[:1]
			}
			byKey[key] = byKey[key][len(those):]
			for _, e := range slices.Backward(those) {
				row.of(e)
			}
		}
	}
}

// key is the primary key of an element or of a row, as text. ok is false where the database is to
// make a part of it.
func (r *readback) key(value reflect.Value, form func(string) string) (key string, ok bool) {
	parts := make([]string, len(r.keys))
	for i, field := range r.keys {
		part, zero := field.ValueOf(r.db.Statement.Context, value)
		if zero && madeByDatabase(field) {
			return "", false
		}
		parts[i] = form(formatKey(part))
	}
	return joinKey(parts), len(parts) > 0
}

// canonical is how a key may stand in the database although the application has written it
// otherwise.
func canonical(text string) string {
	if id, err := uuid.Parse(text); err == nil {
		return id.String()
	}
	return strings.TrimRight(text, " ")
}

func madeByDatabase(field *schema.Field) bool {
	return field.HasDefaultValue && field.DefaultValueInterface == nil
}

// finish gives the elements what was read of them, and leaves the outcome for the capture.
func (r *readback) finish(rows []*readRow) {
	o := &outcome{affected: r.affected}
	slice := r.db.Statement.ReflectValue
	if r.all && slice.CanSet() {
		o.written = r.rebuild(slice, rows)
	} else {
		r.fill()
	}
	for _, e := range r.elements {
		switch {
		case !e.aggregate:
		case e.written:
			o.written = append(o.written, e.found)
		case e.doubtful:
			o.unknown = append(o.unknown, e.found)
		default:
			o.missed = append(o.missed, e.found)
		}
	}
	o.distinct()
	r.db.Statement.Settings.Store(keyOutcome{r.db.Statement}, o)
}

// fill gives each element what was read of its row. A key stays as the application has written it,
// unless the row shows that the database has made one of its own; SQL Server returns its uuids with
// their bytes in another order, which shows nothing.
func (r *readback) fill() {
	ctx := r.db.Statement.Context
	plain := r.db.Name() != string(outbox.SQLServer)
	for _, e := range r.elements {
		if e.row == nil {
			continue
		}
		for _, field := range r.fields {
			if field.DBName == "" || !field.Readable {
				continue
			}
			if _, zero := field.ValueOf(ctx, e.value); zero || plain && e.row.inOrder || !slices.Contains(r.keys, field) {
				value, _ := field.ValueOf(ctx, e.row.value)
				_ = r.db.AddError(field.Set(ctx, e.value, value))
			}
		}
	}
}

// rebuild makes the slice one of the rows, as GORM does when it reads all columns. Their aggregates
// go on with the events of the elements that they replace. It returns those that replace none that
// is known.
func (r *readback) rebuild(slice reflect.Value, rows []*readRow) (others []found) {
	elements := slice
	if slice.Kind() == reflect.Slice {
		elements = slice.Slice(0, 0) // in the same memory, as GORM does
	} else {
		slice.SetZero()
	}
	for i, row := range rows {
		value := row.value
		if slice.Type().Elem().Kind() == reflect.Pointer {
			value = value.Addr()
		}
		if slice.Kind() == reflect.Slice {
			elements = reflect.Append(elements, value)
		} else {
			elements.Index(i).Set(value)
		}
	}
	slice.Set(elements)
	for i, row := range rows {
		value := reflect.Indirect(slice.Index(i))
		if e := row.owner; e != nil {
			if e.aggregate {
				journal.Adopt(value, e.found.recorder)
			}
			e.value, e.found.value = value, value
			continue
		}
		aggregates, err := r.plugin.aggregates(r.db, value.Addr().Interface())
		_ = r.db.AddError(err)
		others = append(others, aggregates...)
	}
	return others
}

// distinct leaves each aggregate in one list: copies that share their events are one.
func (o *outcome) distinct() {
	seen := make(map[*journal.Recorder]bool)
	for _, list := range []*[]found{&o.written, &o.unknown, &o.missed} {
		*list = slices.DeleteFunc(*list, func(f found) bool {
			known := seen[f.recorder]
			seen[f.recorder] = true
			return known
		})
	}
}

// returned are the columns that a statement was told to read back; ok is false where it was told
// nothing.
func returned(s *gorm.Statement) (columns []clause.Column, ok bool) {
	c, ok := s.Clauses["RETURNING"]
	returning, _ := c.Expression.(clause.Returning)
	return returning.Columns, ok
}

// readsAll reports whether these are all columns.
func readsAll(columns []clause.Column) bool {
	return len(columns) == 0 || len(columns) == 1 && columns[0].Name == "*"
}
