package relay

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/outbox/sqlserver"
)

var hostileTables = []string{
	"", " ", "t;", "t; DROP TABLE orders; --", "t--", "t/**/", "t'", `"t"`, "`t`", "[t]", "t t2", "t\n", "\nt", "t\x00", "a.b.c", ".t", "t.", "1t", "a.1t", "tä", "ｔ", "t\u200b",
	"t\u0301", "t$", "t#", "t@x", "t\\", "(t)", "t,u", "t AS u", "{{table}}", "{{name}}", strings.Repeat("t", 49), strings.Repeat("s", 64) + ".t", "app.t;", "%s", "K\u212a",
}

// No store, and no writer, takes a table name that could be more than that; each says so before
// there is a connection.
func TestHostileTableNames(t *testing.T) {
	t.Parallel()
	for _, name := range hostileTables {
		const want = "use letters, digits and underscores"
		require.ErrorContains(t, outbox.ValidateTable(name), want, "%q", name)
		for _, dialect := range []outbox.Dialect{outbox.Postgres, outbox.SQLServer, outbox.SQLite} {
			_, err := outbox.NewInserter(dialect, name)
			require.ErrorContains(t, err, want, "%q", name)
		}
		if name == "" { // stands for the default
			continue
		}
		_, err := postgres.New(nil, name)
		require.ErrorContains(t, err, want, "%q", name)
		_, err = sqlite.New(nil, name)
		require.ErrorContains(t, err, want, "%q", name)
		_, err = sqlserver.New(nil, name)
		require.ErrorContains(t, err, want, "%q", name)
	}
}

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?$`)
	words     = regexp.MustCompile(`[^A-Za-z0-9_.]+`)
)

// FuzzCheckTable: whatever name is let through is one word, or two with a dot between them, and in
// each migration it stands where a harmless name would stand.
func FuzzCheckTable(f *testing.F) {
	for _, name := range append(hostileTables, "outbox_messages", "app.outbox_messages", "_", strings.Repeat("t", 48)) {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if outbox.ValidateTable(name) != nil {
			return
		}
		require.Regexp(t, plainName, name)
		for _, migrations := range []func(string) ([]driver.Migration, error){postgres.Migrations, sqlite.Migrations, sqlserver.Migrations} {
			ours, err := migrations(name)
			require.NoError(t, err)
			schema := name[:strings.IndexByte(name, '.')+1]
			harmless, err := migrations(strings.Repeat("s", max(0, len(schema)-1)) + strings.Repeat(".", min(1, len(schema))) + "zzz")
			require.NoError(t, err)
			for i := range ours { // as many words, whatever the name: it ends none and begins none
				assert.Len(t, words.Split(ours[i].SQL, -1), len(words.Split(harmless[i].SQL, -1)))
			}
		}
	})
}
