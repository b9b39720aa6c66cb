package sqlserver

import (
	sqldriver "database/sql/driver"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
)

// TestWantedFacts keeps schema.facts to what the migrations say, which a test without a server has
// to read by itself; the conformance suite shows on a server that it has read them right.
// FANOUT_UPDATE_GOLDEN writes the file anew.
func TestWantedFacts(t *testing.T) {
	t.Parallel()
	const table = "tname"
	steps, err := Migrations(table)
	require.NoError(t, err)
	var facts schemacheck.Facts
	for _, step := range steps {
		for _, statement := range schemacheck.Split(schemacheck.Scan(step.SQL), ";") {
			facts = addStatement(t, facts, table, statement)
		}
	}
	got := "# What the migrations make, as sql/facts.sql sees it. A test writes this file.\n" + facts.Template(table)
	if os.Getenv("FANOUT_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("schema.facts", []byte(got), 0o600))
	}
	assert.Equal(t, wantedText, got, "FANOUT_UPDATE_GOLDEN=1 go test -run %s", t.Name())
}

// words are tokens as they compare, joined.
func words(tokens []schemacheck.Token) string {
	var all []string
	for _, token := range tokens {
		all = append(all, token.Word())
	}
	return strings.Join(all, " ")
}

// addStatement reads the few kinds of statements that migrations are made of.
func addStatement(t *testing.T, facts schemacheck.Facts, table string, text []schemacheck.Token) schemacheck.Facts {
	t.Helper()
	open := schemacheck.Index(text, "(")
	switch said := words(text); {
	case strings.HasPrefix(said, "set "):
	case strings.HasPrefix(said, "create table "):
		name := text[2].Text
		facts = facts.With("table "+name, "kind", "table")
		for _, item := range schemacheck.Split(schemacheck.Group(text, open), ",") {
			facts = addItem(t, facts, name != table, name, item)
		}
	case strings.HasSuffix(said, " set ( lock_escalation = disable )"):
		facts = facts.With("table "+text[2].Text, "lock escalation", "DISABLE")
	case strings.HasPrefix(said, "create index ") || strings.HasPrefix(said, "create unique index "):
		at := schemacheck.Index(text, "index")
		unique := map[bool]string{true: "yes", false: "no"}[text[1].Word() == "unique"]
		facts = addIndex(facts, text[at+1].Text, "NONCLUSTERED", unique, schemacheck.Group(text, open))
		object := "index " + text[at+1].Text
		if at := schemacheck.Index(text, "include"); at < len(text) {
			included := strings.Split(schemacheck.Text(schemacheck.Group(text, at+1)), ", ")
			slices.Sort(included)
			facts = facts.With(object, "included", strings.Join(included, ", "))
		}
		if at := schemacheck.Index(text, "where"); at < len(text) {
			facts = facts.With(object, "predicate", schemacheck.Text(text[at+1:]))
		}
		facts = facts.With(object, "enabled", "yes")
	default:
		require.Fail(t, "a statement that this test cannot read", schemacheck.Text(text))
	}
	return facts
}

func addIndex(facts schemacheck.Facts, name, kind, unique string, columns []schemacheck.Token) schemacheck.Facts {
	return facts.With("index "+name, "kind", kind).With("index "+name, "unique", unique).With("index "+name, "columns", schemacheck.Text(columns))
}

// addItem reads a column or a constraint.
func addItem(t *testing.T, facts schemacheck.Facts, named bool, table string, item []schemacheck.Token) schemacheck.Facts {
	t.Helper()
	said, open := words(item), schemacheck.Index(item, "(")
	if item[0].Word() != "constraint" {
		object := "column " + item[0].Text
		if named {
			object += " of " + table
		}
		return addColumn(facts, object, item[1:])
	}
	name, rest := item[1].Text, words(item[2:open])
	switch {
	case strings.HasPrefix(rest, "check"):
		return facts.With("constraint "+name, "enabled", "yes").With("constraint "+name, "trusted", "yes")
	case strings.HasPrefix(rest, "primary key clustered"):
		return addIndex(facts, name, "CLUSTERED", "yes", schemacheck.Group(item, open)).With("index "+name, "enabled", "yes")
	case strings.HasPrefix(rest, "primary key nonclustered"), strings.HasPrefix(rest, "unique nonclustered"):
		return addIndex(facts, name, "NONCLUSTERED", "yes", schemacheck.Group(item, open)).With("index "+name, "enabled", "yes")
	default:
		require.Fail(t, "a constraint that this test cannot read", said)
		return nil
	}
}

// addColumn reads what stands behind a column's name.
func addColumn(facts schemacheck.Facts, object string, text []schemacheck.Token) schemacheck.Facts {
	nullable := "yes"
	if strings.Contains(words(text), "not null") {
		nullable = "no"
	}
	if text[0].Word() == "as" {
		persisted := schemacheck.Index(text, "persisted")
		facts = facts.With(object, "nullable", nullable).With(object, "computed", schemacheck.Text(text[1:persisted]))
		return facts.With(object, "persisted", map[bool]string{true: "yes", false: "no"}[persisted < len(text)])
	}
	kind := text[:1]
	if len(text) > 1 && text[1].Text == "(" {
		kind = text[:schemacheck.Index(text, ")")+1]
	}
	facts = facts.With(object, "type", schemacheck.Text(kind))
	if at := schemacheck.Index(text, "collate"); at < len(text) {
		facts = facts.With(object, "collation", text[at+1].Text)
	}
	facts = facts.With(object, "nullable", nullable)
	if at := schemacheck.Index(text, "identity"); at < len(text) {
		facts = facts.With(object, "identity", "by "+schemacheck.Text(schemacheck.Group(text, at+1)[2:]))
	}
	if at := schemacheck.Index(text, "default"); at < len(text) {
		facts = facts.With(object, "default", schemacheck.Text(text[at+1:]))
	}
	return facts
}

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
