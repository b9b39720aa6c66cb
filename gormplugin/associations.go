package gormplugin

import (
	"context"
	"reflect"
	"runtime"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/internal/journal"
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
	selected, _ := db.Statement.SelectAndOmitColumns(true, false)
	c := collector{plugin: p, db: db}
	for name, relation := range db.Statement.Schema.Relationships.Relations {
		if selected[name] && (relation.Type == schema.HasOne || relation.Type == schema.HasMany) {
			_ = db.AddError(c.walkRelation(relation))
		}
	}
	return &children{c.found}
}

// walkRelation collects the aggregates that the values of the statement hold by a relation.
func (c *collector) walkRelation(relation *schema.Relationship) error {
	s := c.db.Statement
	if relation.Field.Schema != s.Schema || !c.plugin.kindOf(relation.FieldSchema.ModelType).mayHold {
		return nil // the first are those of others, which GORM keeps there for its migrations
	}
	for i := range elements(c.db) {
		owner := s.ReflectValue
		if owner.Kind() != reflect.Struct {
			owner = reflect.Indirect(owner.Index(i))
		}
		if !owner.IsValid() || owner.Type() != s.Schema.ModelType {
			continue
		}
		if _, none := relation.Field.ValueOf(s.Context, owner); !none {
			if err := c.walk(relation.Field.ReflectValueOf(s.Context, owner)); err != nil {
				return err
			}
		}
	}
	return nil
}

// passedOver warns of children with events that GORM has not saved with their owners: of several that have one key it
// saves the first.
func (p *Plugin) passedOver(db *gorm.DB, creates bool) error {
	ours, _ := transactionOf(db.Statement.ConnPool)
	s := db.Statement
	if ours == nil || s.Schema == nil || deletes(db) || len(s.Schema.Relationships.Relations) == 0 || kindless(s.ReflectValue) {
		return nil
	}
	for name, relation := range s.Schema.Relationships.Relations {
		c := collector{plugin: p, db: db}
		if err := c.walkRelation(relation); err != nil {
			return err
		}
		if len(c.found) < 2 || !pending(c.found) || !saves(db, name, creates) {
			continue
		}
		if names := c.twins(); len(names) > 0 {
			ours.journal.PassedOver(names)
		}
	}
	return nil
}

// twins are the aggregates with events that have the key of another one, with the names of their types.
func (c *collector) twins() map[*journal.Recorder]string {
	ofKey := make(map[string]int, len(c.found))
	for i := range c.found {
		ofKey[c.found[i].key(c.db)]++
	}
	var names map[*journal.Recorder]string
	for i := range c.found {
		f := &c.found[i]
		if key := f.key(c.db); key == "" || ofKey[key] < 2 || f.recorder.Len() == 0 {
			continue
		}
		if names == nil {
			names = make(map[*journal.Recorder]string)
		}
		names[f.recorder] = f.facts.name
	}
	return names
}

// saves reports whether a statement was told to save what it holds by a relation.
func saves(db *gorm.DB, relation string, creates bool) bool {
	selected, restricted := db.Statement.SelectAndOmitColumns(creates, !creates)
	if all, told := selected[relation+".*"]; told && !all { // of a join table, the rows alone
		return false
	}
	saved, told := selected[relation]
	return told && saved || !told && !restricted
}

// kindless reports whether a statement has no structs.
func kindless(v reflect.Value) bool {
	return !slices.Contains([]reflect.Kind{reflect.Struct, reflect.Slice, reflect.Array}, v.Kind())
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
	rows, err := r.deleted()
	if err != nil {
		_ = db.AddError(err)
		return true
	}
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

// deleted runs a DELETE and returns the keys of its rows. Where it does not return them they are read before, and locked.
func (r *readback) deleted() ([]*readRow, error) {
	s := r.db.Statement
	if returnsRows(s) {
		r.readKeys(false)
		rows, _ := r.run(s.ReflectValue, func() bool { return true })
		return rows, nil
	}
	where, _ := s.Clauses["WHERE"].Expression.(clause.Where)
	query := r.db.Session(&gorm.Session{NewDB: true, SkipHooks: true, Context: s.Context}).Model(reflect.New(s.Schema.ModelType).Interface()).
		Select(s.Schema.PrimaryFieldDBNames).Clauses(where, clause.Locking{Strength: clause.LockingStrengthUpdate})
	query.Statement.ConnPool, query.Statement.Unscoped = s.ConnPool, s.Unscoped
	if s.Table != s.Schema.Table {
		query = query.Table(s.Table)
	}
	into := reflect.New(reflect.SliceOf(reflect.PointerTo(s.Schema.ModelType)))
	if err := query.Find(into.Interface()).Error; err != nil {
		return nil, err //nolint:wrapcheck // the statement's own
	}
	r.keyed = true
	r.original(r.db)
	var rows []*readRow
	for i := range into.Elem().Len() {
		rows = append(rows, &readRow{value: into.Elem().Index(i).Elem()})
	}
	return rows, nil
}

// warnOfAssociation is for db.Model(owner).Association("Lines").Delete and Clear. GORM hands
// neither the owner nor the children to the callbacks of their statements, which cannot ask
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
