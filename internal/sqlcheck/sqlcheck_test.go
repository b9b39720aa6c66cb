package sqlcheck_test

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqlcheck"
)

// Every text that the stores and the writers send to a database is made of constants, embedded
// files and the table's name.
func TestStoresSendTheirOwnTextsAlone(t *testing.T) {
	t.Parallel()
	for dir, test := range map[string]struct {
		trusted sqlcheck.Trusted
		atLeast int
	}{
		// The channel of notifications is made of the table's checked name. ExecContext hands the texts of an
		// outbox.Writer on to pgx. ofBroker fills a number into a text.
		"outbox/postgres": {sqlcheck.Trusted{Functions: []string{"Channel", "ofBroker"}, Fields: []string{"channel"}, Except: []string{"ExecContext"}}, 50},
		"outbox/sqlite":   {sqlcheck.Trusted{}, 45},
		// embedded reads a file. TrimSuffix leaves the schema of the checked name.
		"outbox/sqlserver": {sqlcheck.Trusted{Functions: []string{"embedded", "TrimSuffix"}, Fields: []string{"text"}}, 20},
		// Compile reads a file, withList fills numbers into one, parts cuts a migration into its
		// statements, and Tables are those of the migrations, in which the checked name is filled in.
		"outbox/mysql": {sqlcheck.Trusted{Functions: []string{"Compile", "withList", "Tables"}, Fields: []string{"text"}, Except: []string{"parts"}}, 5},
		// A statement's text is a file's, with the table's name filled in, and numbers in place of
		// its parameters' names. Replace is for tests, and the texts are theirs.
		"internal/sqladmin": {sqlcheck.Trusted{Functions: []string{"ReplaceAllStringFunc"}, Fields: []string{"text"}, Except: []string{"Replace"}}, 3},
		// The texts of inserts are built once for each number of rows and kept; outbox/testdata
		// holds them. messagesSQL is made of the checked name and placeholders alone.
		"outbox": {sqlcheck.Trusted{Functions: []string{"Load", "LoadOrStore", "messagesSQL", "Render"}}, 2},
	} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			// RenderSQL fills a checked name into a file, and batchText puts files together.
			test.trusted.Functions = append(test.trusted.Functions, "RenderSQL", "batchText", "ScratchName", "Bare", "Itoa") // which makes digits
			test.trusted.Fields = append(test.trusted.Fields, "sql", "table", "Table", "SQL", "lockKeys")
			test.trusted.Packages = []string{"outbox", "sqladmin"}
			calls, reports, err := sqlcheck.Check(os.DirFS("../../"+dir), test.trusted)
			require.NoError(t, err)
			assert.Empty(t, reports)
			assert.GreaterOrEqual(t, calls, test.atLeast)
		})
	}
}

// So is what the inbox sends.
func TestInboxSendsItsOwnTextsAlone(t *testing.T) {
	t.Parallel()
	calls, reports, err := sqlcheck.Check(os.DirFS("../../inbox"), sqlcheck.Trusted{
		Functions: []string{"read", "withStatus", "Render", "ReplaceAllStringFunc"}, // of embedded files, with the table's checked name, a status, and question marks filled in
		Fields: []string{
			"claim", "claimToken", "look", "count", "countToken", "deadLetters", "redriven", "redrive", "redriveAll", "finish", "finishToken", "expect", "purge", "lock",
			"migrate", "versions", "record", "SQL", "text", // of a statement, which is read from a file
		},
	})
	require.NoError(t, err)
	assert.Empty(t, reports)
	assert.GreaterOrEqual(t, calls, 12) // most go through exec, queryOne and queryAll
}

// What it is there to find, it finds.
func TestForeignTextsAreReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, want string }{
		"concatenated": {`func (s *S) f(key string) { s.db.ExecContext(ctx, "DELETE FROM t WHERE k = '"+s.key+"'") }`, "x.go:2:79: field key is not known to hold SQL"},
		"formatted":    {`func (s *S) f(key string) { s.db.QueryContext(ctx, fmt.Sprintf("SELECT %s", key)) }`, "x.go:2:52: the result of Sprintf is not known to be SQL"},
		"through a variable": {
			`func (s *S) f(key string) { text := s.sql.find; if key != "" { text += s.key }; s.db.QueryContext(ctx, text) }`, "x.go:2:72: field key is not known to hold SQL",
		},
		"through a helper": {
			"func (s *S) f(text string) { s.db.QueryContext(ctx, text) }\nfunc (s *S) g(key string) { s.f(s.key) }", "x.go:3:33: field key is not known to hold SQL",
		},
		"through a result": {
			"func (s *S) f() { s.db.QueryContext(ctx, s.text()) }\nfunc (s *S) text() string { return s.key }", "x.go:3:36: field key is not known to hold SQL",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := fstest.MapFS{"x.go": {Data: []byte("package x\n" + test.body)}}
			calls, reports, err := sqlcheck.Check(source, sqlcheck.Trusted{Fields: []string{"sql"}})
			require.NoError(t, err)
			assert.Positive(t, calls)
			assert.Equal(t, []string{test.want}, reports)
		})
	}
}
