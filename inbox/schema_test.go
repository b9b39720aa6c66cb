package inbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// Tables of another migration tool, or of a migration that was broken off, are recorded as they are.
// Another's table of that name stays as it is, and the error says how it differs, and not what the
// database says of a CREATE.
func TestMigrateBesideTablesThatAreThere(t *testing.T) {
	t.Parallel()
	for _, database := range databases {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, database.dial(t))
			p.exec("DROP TABLE " + p.table + "_migrations")
			steps, err := inbox.Migrate(t.Context(), p.db, p.at())
			require.NoError(t, err)
			require.Equal(t, []string{"0001_inbox is already there, recorded"}, steps)
			steps, err = inbox.Migrate(t.Context(), p.db, p.at())
			require.NoError(t, err)
			require.Empty(t, steps)

			for statement, difference := range map[string]string{
				"ALTER TABLE " + p.table + " DROP COLUMN last_error": "column last_error: missing",
				p.dropIndex(p.table + "_age"):                        "index " + p.table + "_age: missing",
			} {
				p.exec("DROP TABLE " + p.table + "_migrations")
				p.exec(statement)
				steps, err = inbox.Migrate(t.Context(), p.db, p.at())
				require.ErrorContains(t, err, difference)
				assert.Empty(t, steps)
				p.exec("DROP TABLE " + p.table)
				p.exec("DROP TABLE IF EXISTS " + p.table + "_migrations")
				_, err = inbox.Migrate(t.Context(), p.db, p.at())
				require.NoError(t, err)
			}

			p.exec("DROP TABLE " + p.table)
			p.exec("DROP TABLE " + p.table + "_migrations")
			p.exec("CREATE TABLE " + p.table + " (id integer NOT NULL, status varchar(16), updated_at integer, consumer varchar(16))")
			p.exec("INSERT INTO " + p.table + " (id) VALUES (7)")
			for range 2 {
				steps, err = inbox.Migrate(t.Context(), p.db, p.at())
				require.ErrorContains(t, err, p.table)
				require.ErrorContains(t, err, "column message_id: missing")
				require.ErrorContains(t, err, "inbox.WithTable")
				require.NotContains(t, err.Error(), "already exists")
				assert.Empty(t, steps)
			}
			var id int
			require.NoError(t, p.db.Raw("SELECT id FROM "+p.table).Scan(&id).Error)
			assert.Equal(t, 7, id)
			if p.db.Name() != "mysql" { // there what a migration records is made first
				p.exec("CREATE TABLE " + p.table + "_migrations (version integer)")
			}
		})
	}
}

func (p *place) dropIndex(name string) string {
	if p.db.Name() == "mysql" || p.db.Name() == "sqlserver" {
		return "DROP INDEX " + name + " ON " + p.table
	}
	return "DROP INDEX " + name
}
