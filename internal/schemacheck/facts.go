// Package schemacheck compares the tables of a database with those that the migrations make, on
// every version of every database in the same way.
//
// A schema is facts: objects (a table, a column, an index, a constraint), each with properties. The
// wanted facts are read from the migrations' text, the live ones from the database's catalog. A server
// rewrites expressions (defaults, generated columns, CHECK constraints, predicates of indexes), so
// their texts compare only with those of a scratch schema that the same server has made.
package schemacheck

import (
	"slices"
	"strings"
)

// A Dialect is a kind of database, by the name that configurations have for it, which GORM has, too.
type Dialect string

// The databases.
const (
	Postgres  Dialect = "postgres"
	SQLServer Dialect = "sqlserver"
	SQLite    Dialect = "sqlite"
	MySQL     Dialect = "mysql" // MariaDB, too
)

const (
	// None is the value of a property that an object does not have.
	None = "none"
	// Unknown is the value of a property that the database does not show to the user who asks. It
	// differs from nothing.
	Unknown = "?"
)

// Facts are objects: a table before what belongs to it.
type Facts []Object

// An Object is one thing in a schema.
type Object struct {
	// Name with its kind in front, such as "table outbox_messages" or "column shard". What belongs
	// to another table than the first one says so: "column shard of outbox_messages_shards".
	Name string
	// Properties in the order in which they were found.
	Properties []Property
}

// A Property is one fact about an object. One that an object does not have counts as "none".
type Property struct{ Name, Value string }

// Properties that are expressions of SQL: the migrations and the server word them differently.
const (
	// Default of a column.
	Default = "default"
	// Generated column.
	Generated = "generated"
	// Predicate of an index: the rows that it holds.
	Predicate = "predicate"
	// Expression in place of a column of an index; of several columns all, with commas between them.
	Expression = "expression"
	// CheckExpression is what a CHECK constraint lets pass.
	CheckExpression = "check"
)

// What the names of objects begin with.
const (
	// Table is an object that other objects belong to.
	Table      = "table "
	column     = "column "
	index      = "index "
	constraint = "constraint "
)

// With adds one property of an object, or without a property's name the object alone. Like append
// it returns what it made, and may change what it was called on.
func (f Facts) With(object, property, value string) Facts {
	at := slices.IndexFunc(f, func(o Object) bool { return o.Name == object })
	if at < 0 {
		at = len(f)
		f = append(f, Object{Name: object})
	}
	if property != "" {
		f[at].Properties = append(f[at].Properties, Property{property, value})
	}
	return f
}

// Complete adds what more tells, but for the properties that are known already. It may change what it
// was called on.
func (f Facts) Complete(more Facts) Facts {
	for _, object := range more {
		known := f.Find(object.Name)
		name := object.Name
		if known.Name != "" {
			name = known.Name
		}
		for _, property := range object.Properties {
			if known.Value(property.Name) == None {
				f = f.With(name, property.Name, property.Value)
			}
		}
	}
	return f
}

// Renamed replaces a name that occurs nowhere else, such as that of a scratch schema, in all facts. It
// changes what it was called on.
func (f Facts) Renamed(old, name string) Facts {
	for i := range f {
		f[i].Name = strings.ReplaceAll(f[i].Name, old, name)
		for j := range f[i].Properties {
			f[i].Properties[j].Value = strings.ReplaceAll(f[i].Properties[j].Value, old, name)
		}
	}
	return f
}

// Find returns the object of this name, whatever its case; the zero Object where there is none.
func (f Facts) Find(object string) Object {
	at := slices.IndexFunc(f, func(o Object) bool { return strings.EqualFold(o.Name, object) })
	if at < 0 {
		return Object{}
	}
	return f[at]
}

// Has reports whether there is an object of this name, whatever its case.
func (f Facts) Has(object string) bool { return f.Find(object).Name != "" }

// Tables lists the names of the tables.
func (f Facts) Tables() []string {
	var names []string
	for _, object := range f {
		if name, ok := strings.CutPrefix(object.Name, Table); ok {
			names = append(names, name)
		}
	}
	return names
}

// Owned lists, in lower case, the objects of a kind that belong to the first table: "column ", say.
func (f Facts) Owned(kind string) []string {
	var names []string
	for i, object := range f {
		if i > 0 && strings.HasPrefix(object.Name, Table) {
			break
		}
		if name, ok := strings.CutPrefix(object.Name, kind); ok {
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

// Value of a property.
func (o Object) Value(property string) string {
	for _, p := range o.Properties {
		if p.Name == property {
			return p.Value
		}
	}
	return None
}

// Hidden reports whether the database does not show a property to the user who asks.
func (o Object) Hidden() bool {
	return slices.ContainsFunc(o.Properties, func(p Property) bool { return p.Value == Unknown })
}
