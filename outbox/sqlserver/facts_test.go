package sqlserver

import (
	sqldriver "database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
)

// told is an answer of sql/facts.sql: every fact in one result set, as the server would say it.
func told(facts schemacheck.Facts) reply {
	s := set{columns: []string{"fanout_object", "property", "value"}}
	for _, object := range facts {
		for _, property := range object.Properties {
			s.rows = append(s.rows, []sqldriver.Value{object.Name, property.Name, property.Value})
		}
	}
	return reply{sets: []set{s}}
}

// checked answers a check with told facts, and whatever follows in turn.
func checked(facts schemacheck.Facts, further ...reply) func(request) reply {
	return inTurn(append([]reply{updateability("READ_WRITE"), told(facts)}, further...)...)
}

// live are the facts of a good schema as the catalog of a server tells them.
func live(t *testing.T, store *Store) schemacheck.Facts {
	t.Helper()
	want, err := store.wanted()
	require.NoError(t, err)
	return catalog(want)
}

// change is a copy of facts in which a property has another value; empty takes it away.
func change(facts schemacheck.Facts, object, property, value string) schemacheck.Facts {
	var changed schemacheck.Facts
	for _, o := range facts {
		if o.Name == object && property == "" {
			continue
		}
		for _, p := range o.Properties {
			switch {
			case o.Name != object || p.Name != property:
				changed = changed.With(o.Name, p.Name, p.Value)
			case value != "":
				changed = changed.With(o.Name, p.Name, value)
			}
		}
	}
	if object := changed.Find(object); object.Name != "" && property != "" && value != "" && object.Value(property) != value {
		changed = changed.With(object.Name, property, value)
	}
	return changed
}
