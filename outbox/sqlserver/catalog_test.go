package sqlserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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

// TestDecoded keeps the server of these tests to what real ones have been seen to write.
func TestDecoded(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"0":                                    "((0))",
		"SYSUTCDATETIME()":                     "(sysutcdatetime())",
		"N'pending'":                           "(N'pending')",
		"N''":                                  "(N'')",
		"finished_at IS NULL AND deferred = 0": "([finished_at] IS NULL AND [deferred]=(0))",
		"ordering_key IS NOT NULL":             "([ordering_key] IS NOT NULL)",
		"CONVERT(binary(32), HASHBYTES('SHA2_256', ordering_key))":      "(CONVERT([binary](32),hashbytes('SHA2_256',[ordering_key])))",
		"COALESCE(ordering_key, CONVERT(nvarchar(36), message_id))":     "(coalesce([ordering_key],CONVERT([nvarchar](36),[message_id])))",
		"CASE WHEN priority < 0 THEN 4 ELSE 0 END":                      "(case when [priority]<(0) then (4) else (0) end)",
		"(CONVERT(int, SUBSTRING(payload, 1, 1)) & 3) + deferred":       "((CONVERT([int],substring([payload],(1),(1)))&(3))+[deferred])",
		"status = N'published' AND (shard = 3 OR published_at IS NULL)": "([status]=N'published' AND ([shard]=(3) OR [published_at] IS NULL))",
	} {
		assert.Equal(t, want, decoded(expression))
	}
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
