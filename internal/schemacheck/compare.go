package schemacheck

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// A Database is how expressions are evaluated.
type Database struct {
	Dialect Dialect
	// ASCII is true where the database cannot hold other characters.
	ASCII bool
	// Shard is what Go computes for the column shard of a row, from its ordering key or "", its message
	// id and its priority; nil where no table has such a column.
	Shard func(key string, id uuid.UUID, priority int) int
	// Ask sends a SELECT without parameters, which reads no table, and returns its rows. Run it so
	// that nothing can be written, whatever functions the owner of the tables has put into an
	// expression.
	Ask func(ctx context.Context, query string) ([]Answer, error)
	// Refused is true for an error of the server about the statement itself. Any other ends the
	// comparison.
	Refused func(err error) bool
}

// An Answer tells for which of its rows an expression, as the database has it, makes something else
// than what is wanted: the first one, or -1 for none.
type Answer struct{ Expression, Row int }

// Differences lists, for people, what of the wanted facts is missing in a live schema or different
// there. Objects that the live schema has beyond them are its owner's business; a property that a
// wanted object should not have, such as a default, is a difference. Of a table that is missing
// nothing else is said. Names are the same whatever their case.
func (db *Database) Differences(ctx context.Context, want, live Facts) ([]string, error) {
	there := make(map[string]Object, len(live))
	for _, object := range live {
		there[strings.ToLower(object.Name)] = object
	}
	var (
		found       []difference
		comparisons []*comparison
		table       Object // the one that these objects belong to
		columns     map[string]Object
	)
	for i, object := range want {
		live, ok := there[strings.ToLower(object.Name)]
		if strings.HasPrefix(object.Name, Table) {
			table, columns = live, columnsOf(want[i+1:])
		}
		switch {
		case !ok && (table.Name != "" || strings.HasPrefix(object.Name, Table)):
			found = append(found, difference{text: object.Name + ": missing"})
		case ok:
			for _, d := range object.differences(live) {
				if d.expression != nil {
					d.expression.columns = columns
					comparisons = append(comparisons, d.expression)
				}
				found = append(found, d)
			}
		}
	}
	if err := db.evaluate(ctx, comparisons); err != nil {
		return nil, err
	}
	var texts []string
	for _, d := range found {
		if d.expression == nil || d.expression.differs {
			texts = append(texts, d.text+d.expression.note())
		}
	}
	return texts, nil
}

// A difference, or one that only an evaluation can tell.
type difference struct {
	text       string
	expression *comparison
}

// columnsOf are the columns that stand before the next table.
func columnsOf(facts Facts) map[string]Object {
	columns := map[string]Object{}
	for _, object := range facts {
		if strings.HasPrefix(object.Name, Table) {
			break
		}
		if strings.HasPrefix(object.Name, column) {
			columns[nameOf(object)] = object
		}
	}
	return columns
}

func isExpression(property string) bool {
	return slices.Contains([]string{Default, Generated, Predicate, Expression, CheckExpression}, property)
}

func (o Object) differences(live Object) []difference {
	names := make([]string, 0, len(o.Properties))
	for _, property := range slices.Concat(o.Properties, live.Properties) {
		if !slices.Contains(names, property.Name) {
			names = append(names, property.Name)
		}
	}
	var found []difference
	for _, name := range names {
		is, want := live.Value(name), o.Value(name)
		d := difference{text: fmt.Sprintf("%s: %s is %s, want %s", o.Name, name, is, want)}
		switch {
		case is == Unknown, is == want:
		case isExpression(name) && is != None && want != None: // in other words
			d.expression = &comparison{object: o.Name, property: name, kind: o.Value("type"), live: is, want: want}
			found = append(found, d)
		case !strings.EqualFold(is, want):
			found = append(found, d)
		}
	}
	return found
}
