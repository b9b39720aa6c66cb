// Package schemacheck compares what a database says about its tables with what they should be.
//
// A store reads its catalog as facts: objects (a table, a column, an index, a constraint), each
// with properties. The facts that it wants are an embedded file, which a test writes from the
// migrations, so that there is no second list to maintain.
package schemacheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Unknown is the value of a property that the database does not show to the user who asks. It
// differs from nothing.
const Unknown = "?"

// Facts are objects in the order in which they were found: a table before what belongs to it.
type Facts []Object

// An Object is one thing in a schema.
type Object struct {
	// Name with its kind in front, such as "table outbox_messages" or "column shard".
	Name string
	// Properties in the order in which they were found.
	Properties []Property
}

// A Property is one fact about an object. One that an object does not have counts as "none".
type Property struct{ Name, Value string }

// Table is what the name of an object begins with that other objects belong to.
const Table = "table "

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

// String is the form in which facts are kept in files: a line for each object, and below it,
// indented, one for each of its properties.
func (f Facts) String() string {
	var b strings.Builder
	for _, object := range f {
		b.WriteString(object.Name + "\n")
		for _, property := range object.Properties {
			fmt.Fprintf(&b, "    %s: %s\n", property.Name, property.Value)
		}
	}
	return b.String()
}

// Template is String with the table's name taken out, for driver.RenderSQL to fill in: {{table}} in
// the names of tables, {{name}} in those of indexes and constraints. The name must stand for
// nothing else in the facts.
func (f Facts) Template(table string) string {
	name := regexp.MustCompile(`(^table | of |)\b` + regexp.QuoteMeta(table))
	lines := strings.Split(f.String(), "\n")
	for i, line := range lines {
		lines[i] = name.ReplaceAllStringFunc(line, func(found string) string {
			before := strings.TrimSuffix(found, table)
			if before == "" {
				return "{{name}}"
			}
			return before + "{{table}}"
		})
	}
	return strings.Join(lines, "\n")
}

// Parse reads that form. Lines that begin with "#" and empty lines are passed over.
func Parse(text string) (Facts, error) {
	var facts Facts
	for n, line := range strings.Split(text, "\n") {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case name == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, " "):
			facts = append(facts, Object{Name: strings.TrimSpace(line)})
		case !ok || len(facts) == 0:
			return nil, fmt.Errorf("schemacheck: line %d: want an object, or an indented \"property: value\" below one: %q", n+1, line)
		default:
			last := &facts[len(facts)-1]
			last.Properties = append(last.Properties, Property{name, value})
		}
	}
	return facts, nil
}
