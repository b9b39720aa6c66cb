package gormplugin

import (
	"slices"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/journal"
)

// A bystander is an aggregate that a statement is given and whose row it does not write: what only
// lends its values to the row of another one, as in db.Model(to).Select("Status").Updates(from).

// noteBystanders remembers them before the statement, which may assign the keys that tell them
// apart.
func (p *Plugin) noteBystanders(db *gorm.DB) {
	s := db.Statement
	if s.Model == nil || samePointer(s.Model, s.Dest) || !p.mayHold(s.Model) || !p.mayHold(s.Dest) {
		return
	}
	given, err := p.aggregates(db, s.Dest)
	if err != nil || len(given) == 0 && !deletes(db) {
		return // capture reports it
	}
	model, err := p.aggregates(db, s.Model)
	if err != nil {
		return
	}
	var bystanders []found
	switch {
	case !deletes(db):
		bystanders = slices.DeleteFunc(given, func(f found) bool { return f.isWrittenBy(db, model) })
	case !s.ReflectValue.CanAddr(): // then GORM does not ask for the key of the model
		bystanders = slices.DeleteFunc(model, func(f found) bool { return f.isOneOf(db, given) })
	}
	if len(bystanders) > 0 {
		s.Settings.Store(keyBystanders{s}, bystanders)
	}
}

// isWrittenBy reports whether an UPDATE of a model that takes values from an aggregate writes the
// aggregate. A model without a key stands for a condition, and then what is given is what is
// written. What is given without a key belongs to no row, and the commit says so.
func (f *found) isWrittenBy(db *gorm.DB, model []found) bool {
	if len(model) == 0 || f.facts == model[0].facts && (!hasKeys(db, model) || f.key(db) == "") {
		return true
	}
	return f.isOneOf(db, model)
}

func hasKeys(db *gorm.DB, aggregates []found) bool {
	for i := range aggregates {
		if aggregates[i].hasKey(db) {
			return true
		}
	}
	return false
}

// isOneOf reports whether others have the aggregate, or a copy or another version of it.
func (f *found) isOneOf(db *gorm.DB, others []found) bool {
	return slices.ContainsFunc(others, func(o found) bool {
		return o.recorder == f.recorder || o.facts == f.facts && f.key(db) != "" && o.key(db) == f.key(db)
	})
}

// key is the aggregate's primary key as text, or empty where it has none.
func (f *found) key(db *gorm.DB) string {
	if !f.hasKey(db) {
		return ""
	}
	return f.facts.source(db.Statement.Context, f.value, nil).ID
}

func (f *found) hasKey(db *gorm.DB) bool {
	for _, field := range f.facts.keys {
		if _, zero := field.ValueOf(db.Statement.Context, f.value); !zero {
			return true
		}
	}
	return false
}

func deletes(db *gorm.DB) bool {
	return len(db.Statement.BuildClauses) > 0 && db.Statement.BuildClauses[0] == "DELETE"
}

// bystanders returns what noteBystanders has remembered.
func bystanders(db *gorm.DB) []found {
	noted, _ := db.Statement.Settings.LoadAndDelete(keyBystanders{db.Statement})
	list, _ := noted.([]found)
	return list
}

// without takes aggregates out of a list.
func without(aggregates, others []found) []found {
	out := make(map[*journal.Recorder]bool, len(others))
	for i := range others {
		out[others[i].recorder] = true
	}
	return slices.DeleteFunc(aggregates, func(f found) bool { return out[f.recorder] })
}
