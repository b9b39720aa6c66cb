package inbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// Another's table of that name stays as it is, and is not recorded as the inbox's; one that a migration has
// made that was broken off is.
func TestMigrateBesideTablesThatAreThere(t *testing.T) {
	t.Parallel()
	for _, database := range databases {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, database.dial(t))
			p.exec("DROP TABLE " + p.table + "_migrations")
			applied, err := inbox.Migrate(t.Context(), p.db, p.at())
			if p.db.Name() == "mysql" {
				require.NoError(t, err, "a migration that was broken off goes on")
				require.Equal(t, []string{"0001_inbox"}, applied)
			} else {
				require.Error(t, err, "all is made, or nothing")
				require.NoError(t, p.db.Exec("CREATE TABLE "+p.table+"_migrations (version integer)").Error) // for the cleanup
			}

			p.exec("DROP TABLE " + p.table)
			p.exec("DROP TABLE " + p.table + "_migrations")
			p.exec("CREATE TABLE " + p.table + " (id integer NOT NULL, status varchar(16), updated_at integer, consumer varchar(16))")
			p.exec("INSERT INTO " + p.table + " (id) VALUES (7)")
			for range 2 {
				applied, err = inbox.Migrate(t.Context(), p.db, p.at())
				require.ErrorContains(t, err, p.table)
				assert.Empty(t, applied)
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
