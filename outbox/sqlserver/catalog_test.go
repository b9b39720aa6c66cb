package sqlserver

import (
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
//   - sys.types.name is in lower case, and lengths are counted in bytes, which the query halves.
//   - Included columns have an order of their own in sys.index_columns; the query sorts them by name.
func catalog(want schemacheck.Facts) schemacheck.Facts {
	var told schemacheck.Facts
	for _, object := range want {
		for _, p := range object.Properties {
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
		store, _ = newFake(t, "app.outbox", checked(facts, versions(int64(1))))
		require.NoError(t, store.Check(t.Context()), name)
	}
}
