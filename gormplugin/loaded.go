package gormplugin

import (
	"reflect"
	"strings"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/journal"
)

// loaded runs after a query. It gives the aggregates that were read their recorders, which their
// copies share from then on: those of a range loop, of methods with value receivers, and of what
// takes its argument by value. Should one of them raise something in the transaction that nothing
// writes, the commit knows. And what an aggregate raised in work that was rolled back is over when
// its row is read again.
func (p *Plugin) loaded(db *gorm.DB) {
	if db.Error != nil || db.RowsAffected == 0 || !p.mayHold(db.Statement.Dest) || skipped(db) {
		return
	}
	l := loader{plugin: p, db: db, whole: len(db.Statement.Selects) == 0 && len(db.Statement.Omits) == 0}
	if ours, _ := transactionOf(db.Statement.ConnPool); ours != nil {
		l.journal = &ours.journal
	}
	l.walk(reflect.ValueOf(db.Statement.Dest))
}

// loader walks what a query has read.
type loader struct {
	plugin  *Plugin
	db      *gorm.DB
	journal *journal.Journal // nil outside a transaction
	whole   bool             // all columns were read
}

func (l *loader) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			l.walk(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			l.walk(v.Index(i))
		}
	case reflect.Struct:
		if recorder, ok := journal.RecorderOf(v); ok {
			l.add(recorder, v)
		}
		if len(l.db.Statement.Joins) > 0 {
			l.walkJoins(v)
		}
	default: // maps and the like are no aggregates
	}
}

// walkJoins walks what Joins("Customer") and Joins("Customer.Company") have read with a struct.
func (l *loader) walkJoins(v reflect.Value) {
	s := l.db.Statement
	if s.Schema == nil || v.Type() != s.Schema.ModelType {
		return
	}
	for i := range s.Joins {
		owner, of := v, s.Schema
		for name := range strings.SplitSeq(s.Joins[i].Name, ".") {
			relation := of.Relationships.Relations[name]
			if relation == nil {
				break
			}
			if _, none := relation.Field.ValueOf(s.Context, owner); none {
				break
			}
			owner, of = reflect.Indirect(relation.Field.ReflectValueOf(s.Context, owner)), relation.FieldSchema
			if owner.Kind() != reflect.Struct {
				break
			}
			if recorder, ok := journal.RecorderOf(owner); ok {
				joined := loader{plugin: l.plugin, db: l.db, journal: l.journal, whole: len(s.Joins[i].Selects) == 0 && len(s.Joins[i].Omits) == 0}
				joined.add(recorder, owner)
			}
		}
	}
}

func (l *loader) add(recorder *journal.Recorder, v reflect.Value) {
	if l.journal != nil {
		l.journal.Loaded(recorder, v.Type().Name())
	}
	if l.whole {
		recorder.Reloaded(l.journal)
	}
	if facts, err := l.plugin.sources.of(l.db, v.Type()); err == nil && facts.version != nil && v.CanAddr() {
		if version := facts.versionOf(l.db.Statement.Context, v); version != nil && *version > 0 {
			recorder.HasVersion(*version)
		}
	}
}
