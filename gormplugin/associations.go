package gormplugin

import (
	"context"
	"reflect"
	"runtime"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/outbox"
)

// Statements by which GORM deletes children with their owners, or parts them. They are on a
// template of the children, with keys in their conditions.

// deleteAssociations wraps what GORM does for tx.Select("Lines").Delete(order): the children in
// hand are captured when their rows are among those that it deletes.
func (p *Plugin) deleteAssociations(original func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		var c *children
		if s := db.Statement; db.Error == nil && s.Schema != nil && len(s.Selects) > 0 && !skipped(db) {
			c = p.childrenOf(db)
		}
		if c == nil || len(c.found) == 0 {
			original(db)
			return
		}
		if ours, _ := transactionOf(db.Statement.ConnPool); ours != nil {
			ours.touch(c.found)
		}
		ctx := db.Statement.Context
		defer func() { db.Statement.Context = ctx }()
		db.Statement.Context = context.WithValue(ctx, keyChildren{}, c) // the statements on the children inherit it
		original(db)
		if db.Error == nil {
			p.untouched(db, c.found)
		}
	}
}

// children are the loaded ones that have not been found among the deleted rows.
type children struct{ found []found }

type keyChildren struct{}

// childrenOf collects the children that are to be deleted with their owners. Those by a join table
// stay.
func (p *Plugin) childrenOf(db *gorm.DB) *children {
	s := db.Statement
	selected, _ := s.SelectAndOmitColumns(true, false)
	c := collector{plugin: p, db: db}
	for name, relation := range s.Schema.Relationships.Relations {
		if !selected[name] || relation.Type != schema.HasOne && relation.Type != schema.HasMany || !p.kindOf(relation.FieldSchema.ModelType).mayHold {
			continue
		}
		for i := range elements(db) {
			owner := s.ReflectValue
			if owner.Kind() != reflect.Struct {
				owner = reflect.Indirect(owner.Index(i))
			}
			if !owner.IsValid() || owner.Type() != s.Schema.ModelType {
				continue
			}
			if _, none := relation.Field.ValueOf(s.Context, owner); !none {
				_ = db.AddError(c.walk(relation.Field.ReflectValueOf(s.Context, owner)))
			}
		}
	}
	return &children{c.found}
}

// deleteChildren is one of those statements. It reads back the keys of what it deletes.
func (p *Plugin) deleteChildren(db *gorm.DB, original func(*gorm.DB)) (done bool) {
	s := db.Statement
	c, ok := s.Context.Value(keyChildren{}).(*children)
	if !ok || s.Schema == nil || s.ReflectValue.Kind() != reflect.Struct || !deletes(db) || db.Name() == string(outbox.SQLServer) {
		return false // SQL Server returns nothing of tables with triggers
	}
	r := &readback{plugin: p, db: db, original: original, keys: s.Schema.PrimaryFields}
	for _, f := range c.found {
		if f.value.Type() == s.Schema.ModelType {
			r.elements = append(r.elements, &element{value: f.value, found: f, aggregate: true})
		}
	}
	if len(r.elements) == 0 {
		return false
	}
	r.readKeys(false)
	rows, _ := r.run(s.ReflectValue, func() bool { return true })
	r.match(r.elements, rows, false)
	o := &outcome{}
	for _, e := range r.elements {
		if e.written {
			o.written = append(o.written, e.found)
		}
	}
	o.distinct()
	c.found = without(c.found, o.written)
	s.Settings.Store(keyOutcome{s}, o)
	return true
}

// warnOfAssociation is for db.Model(owner).Association("Lines").Delete and Clear. GORM hands
// neither the owner nor the children to the callbacks of their statements, so that nobody can ask
// them for events. aggregates are those given: templates.
func (p *Plugin) warnOfAssociation(db *gorm.DB, aggregates []found) {
	s := db.Statement
	if db.Error != nil || db.RowsAffected == 0 || s.Schema == nil || !hasIn(s.Clauses["WHERE"].Expression) || hasKeys(db, aggregates) {
		return
	}
	if _, warned := p.associations.Load(s.Table); warned || !p.isRelated(s.Schema) || !calledByAssociation() {
		return
	}
	if _, warned := p.associations.LoadOrStore(s.Table, true); !warned {
		p.log.WarnContext(s.Context, "Association().Delete and Clear capture no events", "table", s.Table,
			"remedy", "give the aggregates to uow.Track in the same transaction, or save them")
	}
}

// hasIn reports whether a condition is one of those that GORM builds of keys.
func hasIn(expression clause.Expression) bool {
	switch e := expression.(type) {
	case clause.IN:
		return true
	case clause.Where:
		return slices.ContainsFunc(e.Exprs, hasIn)
	case clause.AndConditions:
		return slices.ContainsFunc(e.Exprs, hasIn)
	default:
		return false
	}
}

// isRelated reports whether a model is an aggregate, or joins some, or is a child of one that the
// plugin has seen.
func (p *Plugin) isRelated(s *schema.Schema) bool {
	isAggregate := func(t reflect.Type) bool { return p.kindOf(t).mayHold }
	related := isAggregate(s.ModelType)
	for _, relation := range s.Relationships.Relations {
		related = related || isAggregate(relation.FieldSchema.ModelType)
	}
	p.sources.types.Range(func(_, known any) bool {
		if f, _ := known.(*facts); len(f.keys) > 0 {
			for _, relation := range f.keys[0].Schema.Relationships.Relations {
				related = related || relation.FieldSchema.ModelType == s.ModelType
			}
		}
		return !related
	})
	return related
}

func calledByAssociation() bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		switch frame.Function {
		case "gorm.io/gorm.(*Association).Delete", "gorm.io/gorm.(*Association).Clear":
			return true
		}
		if !more {
			return false
		}
	}
}
