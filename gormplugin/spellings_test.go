package gormplugin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/outbox"
)

// Every spelling that the databases accept counts, with prepared statements as without.
func TestSpellingsOfSavepoints(t *testing.T) {
	t.Parallel()
	spellings := map[string][2]string{
		"plain":                 {"SAVEPOINT mine", "ROLLBACK TO SAVEPOINT mine"},
		"short":                 {"savepoint mine", "rollback to mine"},
		"with transaction":      {"SAVEPOINT mine", "ROLLBACK TRANSACTION TO SAVEPOINT mine"},
		"case of names":         {"SAVEPOINT Mine", "ROLLBACK TO SAVEPOINT mINE"},
		"quoted":                {`SAVEPOINT "Mine"`, `ROLLBACK TO "Mine"`},
		"quoted once":           {`SAVEPOINT mine`, `ROLLBACK TO "mine"`},
		"quoted with a quote":   {`SAVEPOINT "my""own"`, `ROLLBACK TO "my""own"`},
		"comments and space":    {"/* a */ SAVEPOINT\n mine -- b", "ROLLBACK /* c */ TO\tSAVEPOINT mine ;"},
		"names beyond ascii":    {`SAVEPOINT größe`, `ROLLBACK TO größe`},
		"nested comments":       {"/* a /* b */ */ SAVEPOINT mine", "ROLLBACK TO mine"},
		"quoted, other case":    {`SAVEPOINT "Mine"`, `ROLLBACK TO mine`},
		"backticks":             {"SAVEPOINT `my``own`", "ROLLBACK WORK TO `My``Own`"},
		"minus is no comment":   {"SAVEPOINT mine", "ROLLBACK TO SAVEPOINT mine -- \n"},
		"number sign":           {"# SELECT 1\nSAVEPOINT mine # '", "ROLLBACK TO mine"},
		"server: plain":         {"SAVE TRANSACTION mine", "ROLLBACK TRANSACTION mine"},
		"server: short":         {"save tran mine", "rollback tran mine"},
		"server: with brackets": {"SAVE TRANSACTION [my own]", "ROLLBACK TRANSACTION [my own]"},
	}
	only := map[string]outbox.Dialect{
		"nested comments": outbox.Postgres, "quoted, other case": outbox.SQLite, "backticks": outbox.MySQL, "minus is no comment": outbox.MySQL, "number sign": outbox.MySQL,
	}
	cases := map[string]func(b *bench){}
	for _, prepared := range []bool{false, true} {
		suffix := map[bool]string{true: ", prepared"}[prepared]
		for name, spelling := range spellings {
			cases[name+suffix] = func(b *bench) {
				if strings.HasPrefix(name, "server: ") {
					b.only(outbox.SQLServer, "its own spelling")
				} else {
					b.standard()
				}
				if strings.HasPrefix(name, "quoted") || name == "with transaction" {
					b.not(outbox.MySQL, "such names are strings, and WORK is its only word")
				}
				if prepared {
					b.preparesSavepoints()
				}
				if dialect, ok := only[name]; ok {
					b.only(dialect, "the others refuse it or mean something else")
				}
				o := order("2", "b")
				b.ok(b.db.Session(&gorm.Session{PrepareStmt: prepared}).Transaction(func(tx *gorm.DB) error {
					b.ok(tx.Create(order("1", "a")).Error)
					b.ok(tx.Exec(spelling[0]).Error)
					b.ok(tx.Create(o).Error)
					return tx.Exec(spelling[1]).Error
				}))
				assert.Equal(b.t, 1, b.orders(), "the database has understood it")
				b.want("1: a")
				b.pending(o, "b")
			}
		}
	}
	runCases(t, cases)
}
