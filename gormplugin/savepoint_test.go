package gormplugin

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/outbox"
)

func TestParseSavepoint(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]savepointChange{
		"SAVEPOINT sp1":                         {savepointSet, "sp1"},
		"  savepoint \"A b\" ;":                 {savepointSet, "A b"},
		"/* x */ SAVEPOINT -- y\n Foo":          {savepointSet, "foo"},
		"ROLLBACK TO SAVEPOINT sp1":             {savepointRollback, "sp1"},
		"ROLLBACK TO sp1;":                      {savepointRollback, "sp1"},
		"ROLLBACK TRANSACTION TO SAVEPOINT sp1": {savepointRollback, "sp1"},
		"rollback work to sp1":                  {savepointRollback, "sp1"},
		"RELEASE sp1":                           {savepointRelease, "sp1"},
		"RELEASE SAVEPOINT sp1":                 {savepointRelease, "sp1"},
		"SAVE TRANSACTION sp1;":                 {savepointSet, "sp1"},
		"SAVE TRAN [sp1]":                       {savepointSet, "sp1"},
		"ROLLBACK TRANSACTION sp1;":             {savepointRollback, "sp1"},
		"ROLLBACK TRAN sp1":                     {savepointRollback, "sp1"},
		"ROLLBACK":                              {kind: transactionEnd},
		"ROLLBACK TRANSACTION":                  {kind: transactionEnd},
		"ROLLBACK WORK AND NO CHAIN;":           {kind: transactionEnd},
		"abort":                                 {kind: transactionEnd},
		"/* x */ COMMIT WORK -- y":              {kind: transactionEnd},
		"COMMIT AND CHAIN":                      {kind: transactionEnd},
		"END TRANSACTION;":                      {kind: transactionEnd},
		"ROLLBACK PREPARED 'x'":                 {},
		"COMMIT PREPARED 'x'":                   {},
		"SAVEPOINT":                             {},
		"SAVEPOINT a b":                         {},
		"SELECT 'SAVEPOINT x'":                  {},
		"INSERT INTO savepoint VALUES (1)":      {},
		"SAVE x":                                {},
		"SAVEPOINT \"open":                      {},
		"":                                      {},
		`SAVEPOINT "my""own"`:                   {savepointSet, `my"own`},
		"/* a /* b */ */ SAVEPOINT x":           {savepointSet, "x"},
	} {
		assert.Equal(t, want, parseSavepoint(outbox.Postgres, query), query)
	}
}

// Each database compares names, and reads comments, in its own way.
func TestParseSavepointByDialect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect     outbox.Dialect
		query, name string
	}{
		{outbox.Postgres, `SAVEPOINT "Mine"`, "Mine"},
		{outbox.Postgres, `SAVEPOINT Mine`, "mine"},
		{outbox.SQLite, `SAVEPOINT "Mine"`, "mine"},
		{outbox.SQLite, `/* a /* b */ SAVEPOINT mine`, "mine"},
		{outbox.SQLServer, `SAVE TRAN Mine`, "Mine"},
		{outbox.SQLServer, `SAVE TRANSACTION [my]]own]`, "my]own"},
	} {
		assert.Equal(t, savepointChange{savepointSet, c.name}, parseSavepoint(c.dialect, c.query), c.query)
	}
}

// On SQL Server a COMMIT may close an inner BEGIN TRANSACTION, while a ROLLBACK without a name ends all.
func TestParseEndBySQLServer(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]savepointKind{
		"ROLLBACK": transactionEnd, "ROLLBACK TRAN;": transactionEnd, "COMMIT": savepointNone, "COMMIT TRANSACTION": savepointNone,
	} {
		assert.Equal(t, want, parseSavepoint(outbox.SQLServer, query).kind, query)
	}
}

func FuzzParseSavepoint(f *testing.F) {
	for _, seed := range []string{"SAVEPOINT a", "ROLLBACK TO \"x\"", "/*", "--", "SAVE TRAN [", "release \xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		change := parseSavepoint(outbox.SQLite, query)
		if (change.kind == savepointNone || change.kind == transactionEnd) != (change.name == "") {
			t.Errorf("%q: kind %d with name %q", query, change.kind, change.name)
		}
	})
}
