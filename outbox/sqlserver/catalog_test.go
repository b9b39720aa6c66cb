package sqlserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
)

// catalog tells facts as the catalog of a server does (2016 to 2022 and Azure SQL answer alike), by
// the documentation of the views that sql/facts.sql reads:
//
//   - sys.tables.lock_escalation_desc is TABLE, AUTO or DISABLE for every table; TABLE where nobody has chosen.
//   - sys.columns.collation_name names a collation for every column of characters; the database's where nobody has chosen.
//   - sys.default_constraints, sys.computed_columns, sys.check_constraints and sys.indexes.filter_definition hold decoded
//     expressions, without a promise of their wording (IN becomes a chain of OR, for one). Servers write: parentheses around everything and around each number, brackets around names and types,
//     functions and CASE in lower case, other words in upper case, and no blanks beside operators and commas.
//   - sys.types.name is in lower case, and lengths are counted in bytes, which the query halves.
//   - Included columns have an order of their own in sys.index_columns; the query sorts them by name.
func catalog(want schemacheck.Facts) schemacheck.Facts {
	var told schemacheck.Facts
	for _, object := range want {
		for _, p := range object.Properties {
			switch p.Name {
			case schemacheck.Default, schemacheck.Generated, schemacheck.Predicate, schemacheck.CheckExpression:
				p.Value = decoded(p.Value)
			}
			told = told.With(object.Name, p.Name, p.Value)
		}
		if strings.HasPrefix(object.Name, schemacheck.Table) && object.Value("lock escalation") == schemacheck.None {
			told = told.With(object.Name, "lock escalation", "TABLE")
		}
		if strings.HasPrefix(object.Value("type"), "nvarchar") && object.Value("collation") == schemacheck.None {
			told = told.With(object.Name, "collation", "SQL_Latin1_General_CP1_CI_AS")
		}
	}
	return told
}

// decoded is an expression as servers write it.
func decoded(expression string) string {
	var (
		b      strings.Builder
		tokens = schemacheck.Scan(schemacheck.SQLServer, expression)
		spaced = false // after a keyword or a value, before the next
	)
	for i, token := range tokens {
		word := token.Word()
		call := i+1 < len(tokens) && tokens[i+1].Text == "("
		text, blank := word, false
		switch {
		case slices.Contains([]string{"int", "binary", "nvarchar"}, word):
			text, blank = "["+word+"]", true
		case slices.Contains([]string{"case", "when", "then", "else", "end", "like"}, word):
			blank = true
		case slices.Contains([]string{"is", "not", "null", "and", "or", "in"}, word):
			text, blank = strings.ToUpper(word), true
		case strings.HasSuffix(word, "'"):
			text, blank = token.Text, true
		case strings.Trim(word, "0123456789") == "":
			// A length belongs to its type; every other number is an expression.
			if i < 2 || tokens[i-2].Word() != "nvarchar" && tokens[i-2].Word() != "binary" {
				text = "(" + word + ")"
			}
			blank = true
		case call && !strings.ContainsAny(word, "(),<>=&+"):
			text, blank = word, true
			if word == "convert" {
				text = "CONVERT"
			}
		case strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == "":
			text, blank = "["+word+"]", true
		}
		if spaced && (blank || text == "(") {
			b.WriteByte(' ')
		}
		b.WriteString(text)
		spaced = blank && (!call || text == "AND" || text == "OR")
	}
	return "(" + b.String() + ")"
}

// A table that has just been migrated is up to date, whatever its owner sets that is no business of
// the outbox.
func TestCheckAfterMigration(t *testing.T) {
	t.Parallel()
	for name, escalation := range map[string]string{"nothing was set": "", "by partition": "AUTO", "never": "DISABLE"} {
		store, _ := newFake(t, "app.outbox", inTurn())
		facts := live(t, store)
		for _, table := range []string{"_pauses", "_instances", "_audit"} {
			object := schemacheck.Table + "app.outbox" + table
			require.Equal(t, "TABLE", facts.Find(object).Value("lock escalation"))
			if escalation != "" {
				facts = change(facts, object, "lock escalation", escalation)
			}
		}
		store, _ = newFake(t, "app.outbox", checked(facts, nil, versions(int64(1))))
		require.NoError(t, store.Check(t.Context()), name)
	}
}
