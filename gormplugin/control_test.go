package gormplugin

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// controlCases are texts and what their statements do, in turn, in all of these databases.
var controlCases = []struct {
	on   []outbox.Dialect
	text string
	want []control
}{
	{all, "", nil},
	{all, ";", nil},
	{all, "SELECT 'SAVEPOINT x'", nil},
	{all, "INSERT INTO savepoint VALUES (1)", nil},
	{all, "insert into a values (1);", nil},
	{all, "-- ROLLBACK\nSELECT 1; /* COMMIT; */", nil},
	{all, `SELECT '; COMMIT; ' AS "a; COMMIT; "`, nil},
	{all, "SELECT 'it''s; ROLLBACK'; SELECT 1", nil},
	{all, "ROLLBACK", end},
	{all, "ROLLBACK TRANSACTION", end},
	{all, "rollback ;", end},
	{all, "INSERT INTO a VALUES (1); ROLLBACK", end},
	{all, ";;ROLLBACK;;", end},
	{all, "ROLLBACK what is this", unknown},
	{all, "COMMIT AND", unknown},

	{standard, "SAVEPOINT sp1", set("sp1")},
	{standard, "/* x */ SAVEPOINT -- y\n Foo", set("foo")},
	{standard, `SAVEPOINT "my""own"`, set(`my"own`)},
	{standard, "SAVEPOINT größe", set("größe")},
	{standard, "SAVEPOINT GRÖSSE", set("grÖsse")}, // letters beyond ASCII are not folded
	{standard, "ROLLBACK TO SAVEPOINT sp1", back("sp1")},
	{standard, "ROLLBACK TO sp1;", back("sp1")},
	{standard, "ROLLBACK TRANSACTION TO SAVEPOINT sp1", back("sp1")},
	{standard, "rollback work to sp1", back("sp1")},
	{standard, "RELEASE sp1", []control{{savepointRelease, "sp1"}}},
	{standard, "RELEASE SAVEPOINT sp1", []control{{savepointRelease, "sp1"}}},
	{standard, "COMMIT", end},
	{standard, "END TRANSACTION;", end},
	{standard, "ROLLBACK TO SAVEPOINT a; SELECT 1", back("a")},
	{standard, "SAVEPOINT a; INSERT INTO t VALUES (1)", set("a")},
	{standard, "INSERT INTO t VALUES (1); ROLLBACK TO a; SELECT 1; RELEASE a", []control{{savepointRollback, "a"}, {savepointRelease, "a"}}},
	{standard, "COMMIT; BEGIN", end},
	{standard, "COMMIT; BEGIN; SAVEPOINT a", []control{{kind: transactionEnd}, {savepointSet, "a"}}},
	{standard, "SAVEPOINT", unknown},
	{standard, "SAVEPOINT a b", unknown},
	{standard, "SAVEPOINT \"open", unknown},
	{standard, "SELECT 1 AS \"commit; ROLLBACK", unknown},
	{standard, "ROLLBACK TO a b; SELECT 1", unknown},
	{standard, "SAVE x", nil},
	{standard, "SELECT CASE WHEN 1 = 1 THEN 2 END; SELECT 1", nil},

	{postgres, `  savepoint "A b" ;`, set("A b")},
	{postgres, `SAVEPOINT "Mine"`, set("Mine")},
	{postgres, `SAVEPOINT Mine`, set("mine")},
	{postgres, "/* a /* b */ */ SAVEPOINT x", set("x")},
	{postgres, "SAVEPOINT " + strings.Repeat("x", 70), set(strings.Repeat("x", 63))},
	{postgres, "SAVEPOINT x" + strings.Repeat("ö", 40), set("x" + strings.Repeat("ö", 31))},
	{postgres, "ROLLBACK WORK AND NO CHAIN;", end},
	{postgres, "abort", end},
	{postgres, "/* x */ COMMIT WORK -- y", end},
	{postgres, "COMMIT AND CHAIN", end},
	{postgres, "-- a\rROLLBACK", end}, // it ends comments there
	{postgres, "PREPARE TRANSACTION 'x'", end},
	{postgres, "PREPARE TRANSACTION E'\\'; x'; ROLLBACK PREPARED 'x'", end},
	{postgres, "PREPARE p AS SELECT 1; EXECUTE p", nil},
	{postgres, "ROLLBACK PREPARED 'x'", nil},
	{postgres, "COMMIT PREPARED 'x'; SELECT 1", nil},
	{postgres, "SELECT $$; COMMIT; $$; SELECT $a$ $$; COMMIT; $b$ $a$, $1", nil},
	{postgres, "SELECT a$$; COMMIT", end}, // no quote: a name
	{postgres, "SELECT $1; COMMIT; SELECT $2", end},
	{postgres, "SELECT E'\\'; COMMIT; ''; COMMIT', e'\\\\'; SELECT 1", nil},
	{postgres, "SELECT 'a\\'; COMMIT; SELECT '", unknown}, // one statement without standard_conforming_strings
	{postgres, "SELECT a[1]; COMMIT; SELECT b[1]", end},
	{postgres, "SELECT 1 ` 2; COMMIT; SELECT 1 ` 2", end},
	{postgres, "DO $$ BEGIN COMMIT; END $$", nil},
	{postgres, "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END AS x; END; SELECT 1", nil},
	{postgres, "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; ROLLBACK", end},
	{postgres, "CREATE TABLE begin (x int); ROLLBACK", end},
	{postgres, "SAVEPOINT U&\"a\"", unknown},

	{sqlite, `  savepoint "A b" ;`, set("a b")},
	{sqlite, "SAVEPOINT `Mine`", set("mine")},
	{sqlite, "SAVEPOINT 'it''s'", set("it's")},
	{sqlite, "SAVEPOINT [Mine]", set("mine")},
	{sqlite, "/* a /* b */ SAVEPOINT mine", set("mine")},
	{sqlite, "\ufeffROLLBACK", end},
	{sqlite, "ROLLBACK TRANSACTION a", end}, // it takes the name for the transaction's, and does not look at it
	{sqlite, "COMMIT TRANSACTION a; SELECT 1", end},
	{sqlite, "COMMIT /* to the end", end},
	{sqlite, "SELECT [;]; COMMIT; SELECT 1 -- [", end},
	{sqlite, "SELECT `; COMMIT;`; SELECT 1", nil},
	{sqlite, "SELECT $$; COMMIT", end}, // names of parameters
	{sqlite, "CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT CASE 1 WHEN 1 THEN RAISE(ROLLBACK, 'no') END; SELECT 1; END; SELECT 1", nil},
	{sqlite, "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END; COMMIT", end},
	{sqlite, "EXPLAIN ROLLBACK", nil},

	{server, "SAVE TRANSACTION sp1;", set("sp1")},
	{server, "SAVE TRAN Mine", set("Mine")},
	{server, "SAVE TRANSACTION [my]]own]", set("my]own")},
	{server, "ROLLBACK TRANSACTION sp1;", back("sp1")},
	{server, "ROLLBACK TRAN [sp1]", back("sp1")},
	{server, "ROLLBACK TRAN;", end},
	{server, "ROLLBACK WORK", end},
	{server, "COMMIT", []control{{kind: nestedCommit}}},
	{server, "COMMIT TRANSACTION x", []control{{kind: nestedCommit}}},
	{server, "COMMIT WORK; SELECT 1", []control{{kind: nestedCommit}}},
	{server, "BEGIN TRAN; INSERT INTO t VALUES (1); COMMIT TRAN", []control{{kind: nestedBegin}, {kind: nestedCommit}}},
	{server, "BEGIN DISTRIBUTED TRANSACTION x", []control{{kind: nestedBegin}}},
	{server, "SAVE TRAN a; INSERT INTO t VALUES (1); ROLLBACK TRAN a", []control{{savepointSet, "a"}, {savepointRollback, "a"}}},
	{server, "IF @@TRANCOUNT > 0 ROLLBACK", unknown},
	{server, "INSERT INTO t VALUES (1) ROLLBACK", unknown},
	{server, "UPDATE t SET a = 1\u00a0ROLLBACK", unknown},
	{server, "INSERT INTO t VALUES (1)\nSAVE TRAN a", unknown},
	{server, "SELECT 1 begin /* */ tran", unknown},
	{server, "ROLLBACK TRAN a INSERT INTO t VALUES (1)", unknown},
	{server, "IF @x = 1 RETURN; ROLLBACK TRAN a", unknown},
	{server, "BEGIN TRY; COMMIT; END TRY BEGIN CATCH SELECT 1 END CATCH", unknown},
	{server, "WHILE 1 = 1 BEGIN SAVE TRAN a; END", unknown},
	{server, "SAVE TRAN @name", unknown},
	{server, "SELECT 1 -- a\rROLLBACK", unknown},
	{server, "SELECT [commit], [a;]] ROLLBACK], \"ROLLBACK\", t.save, @rollback, '; COMMIT' FROM t", nil},
	{server, "IF @x = 1 BEGIN SELECT 1 END ELSE SELECT 2", nil},
	{server, "CREATE OR ALTER PROCEDURE p AS BEGIN TRAN; COMMIT", nil},
	{server, "ALTER TABLE t DISABLE TRIGGER x; ROLLBACK", end},
	{server, "SELECT $; ROLLBACK", end},

	{mysql, "SAVEPOINT `my``Own`", set("my`own")},
	{mysql, "SAVEPOINT Mine # '", set("mine")},
	{mysql, "/* a /* b */ SAVEPOINT x", set("x")},
	{mysql, "ROLLBACK WORK TO SAVEPOINT a", back("a")},
	{mysql, "rollback to a; SELECT 1", back("a")},
	{mysql, "RELEASE SAVEPOINT a", []control{{savepointRelease, "a"}}},
	{mysql, "COMMIT WORK AND NO CHAIN NO RELEASE", end},
	{mysql, "COMMIT RELEASE", end},
	{mysql, "COMMIT NO", unknown},
	{mysql, "START TRANSACTION", end},
	{mysql, "BEGIN", end},
	{mysql, "CREATE TABLE a (b int)", end},
	{mysql, "ALTER TABLE a ADD c int; SELECT 1", end},
	{mysql, "CREATE TEMPORARY TABLE a (b int)", nil},
	{mysql, "DROP TEMPORARY TABLE a", nil},
	{mysql, "CREATE OR REPLACE TEMPORARY TABLE a (b int)", nil},
	{mysql, "CREATE OR REPLACE TABLE a (b int)", end},
	{mysql, "CREATE TEMPORARY SEQUENCE a", end},
	{mysql, "TRUNCATE a", end},
	{mysql, "ANALYZE TABLE a", end},
	{mysql, "ANALYZE FORMAT=JSON SELECT 1", nil},
	{mysql, "SET PASSWORD = 'x'", end},
	{mysql, "SET DEFAULT ROLE NONE", end},
	{mysql, "SET ROLE NONE", nil},
	{mysql, "SET STATEMENT max_statement_time = 1 FOR COMMIT", asked},
	{mysql, "CALL p(';COMMIT')", asked},
	{mysql, "EXECUTE s", asked},
	{mysql, "EXECUTE IMMEDIATE 'COMMIT'", asked},
	{mysql, "LOAD DATA INFILE 'a' INTO TABLE a", nil},
	{mysql, "LOAD INDEX INTO CACHE a", asked},
	{mysql, "CHANGE REPLICATION FILTER REPLICATE_DO_DB = (a)", asked},
	{mysql, "LOCK TABLES a READ", end},
	{mysql, "SET autocommit = 1", end},
	{mysql, "SET @a = 'autocommit'", nil},
	{mysql, "XA END 'x'", unknown},
	{mysql, "CLONE LOCAL DATA DIRECTORY = 'a'", end},
	{mysql, "IF 1 THEN COMMIT; END IF", []control{{kind: controlUnknown}}},
	{mysql, "SELECT 1--1; COMMIT", end},
	{mysql, "SELECT 1 -- 1; COMMIT", nil},
	{mysql, "# COMMIT\nSELECT 1", nil},
	{mysql, "SELECT 'a # b'; COMMIT", end},
	{mysql, `SELECT 'a\\'; COMMIT`, end},
	{mysql, `SELECT "it\"s a COMMIT"`, nil},
	{mysql, `SELECT 'it\'; COMMIT; '`, unknown}, // with NO_BACKSLASH_ESCAPES it commits
	{mysql, "/*!50000 COMMIT */", unknown},
	{mysql, "REPLACE INTO t VALUES (1)", nil},
}

var (
	all      = []outbox.Dialect{outbox.Postgres, outbox.SQLite, outbox.SQLServer, outbox.MySQL}
	standard = []outbox.Dialect{outbox.Postgres, outbox.SQLite}
	postgres = []outbox.Dialect{outbox.Postgres}
	sqlite   = []outbox.Dialect{outbox.SQLite}
	server   = []outbox.Dialect{outbox.SQLServer}
	mysql    = []outbox.Dialect{outbox.MySQL}

	end     = []control{{kind: transactionEnd}}
	asked   = []control{{kind: transactionMayEnd}}
	unknown = []control{{kind: controlUnknown}}
)

func set(name string) []control  { return []control{{savepointSet, name}} }
func back(name string) []control { return []control{{savepointRollback, name}} }

func TestReadControl(t *testing.T) {
	t.Parallel()
	for _, c := range controlCases {
		for _, dialect := range c.on {
			got, _ := readControl(dialect, c.text)
			assert.Equal(t, c.want, got, "%s: %s", dialect, c.text)
		}
	}
}

// A text of any kind is read in time that grows with its length, not with the square of it: then this
// test would not end.
func TestReadingTakesLinearTime(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	units := []string{
		"'", "\"", "[", "]", "/*", "*/", "-", "$", "$a", "$a$", "a$", "E'\\", ";", "SAVEPOINT ", "SAVE TRAN a ", "(", "\u00a0", "\xff", "create begin ",
	}
	for _, unit := range units {
		for _, dialect := range all {
			readControl(dialect, "a"+strings.Repeat(unit, 1<<19/len(unit)))
		}
	}
}

// Whatever the text: what is found has a name where it needs one, a text that the quick look takes
// for ordinary is ordinary, and another statement at the end changes nothing in those before it.
func FuzzReadControl(f *testing.F) {
	for _, c := range controlCases {
		for i := range c.on {
			f.Add(i, c.text)
		}
	}
	for _, text := range []string{"/*", "--", "SAVE TRAN [", "release \xff", "E'\\"} {
		f.Add(0, text)
	}
	f.Fuzz(func(t *testing.T, database int, text string) {
		dialect := all[((database%len(all))+len(all))%len(all)]
		controls, statements := readControl(dialect, text)
		if len(controls) > statements && statements > 0 {
			t.Errorf("%q: %d controls in %d statements", text, len(controls), statements)
		}
		for _, c := range controls {
			named := c.kind == savepointSet || c.kind == savepointRollback || c.kind == savepointRelease
			if c.kind == controlNone || named != (c.name != "") {
				t.Errorf("%q: kind %d with name %q", text, c.kind, c.name)
			}
		}
		if isOrdinary(dialect, text) {
			// The space asks for all of it to be read. A quote that does not end is an error to the
			// database.
			if found, _ := readControl(dialect, " "+text); found != nil && found[0].kind != controlUnknown {
				t.Errorf("%q: ordinary at a glance, %v", text, found)
			}
		}
	})
}

func BenchmarkReadControl(b *testing.B) {
	insert := "INSERT INTO orders (id, customer, status) VALUES " + strings.Repeat("(@p1, @p2, @p3), ", 10) + "(@p4, @p5, @p6)"
	for _, dialect := range all {
		b.Run(string(dialect), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				readControl(dialect, insert)
			}
		})
	}
}
