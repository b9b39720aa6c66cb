package mysql

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The check writes nothing: a user who may only read the tables can do it, whatever the session's
// settings are. That user cannot make the scratch, or not all of it, learns why, and leaves nothing.
func TestCheckWritesNothing(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	db := openDB(t, dsn)
	store := newStore(t, db, "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	settings, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	want, err := store.wanted(1)
	require.NoError(t, err)
	user := "check_" + strings.ToLower(rand.Text()[:12])
	statements := []string{"CREATE USER " + user + " IDENTIFIED BY 'secret'"}
	for _, table := range append(want.Tables(), "outbox_migrations") {
		statements = append(statements, "GRANT SELECT ON "+settings.DBName+"."+table+" TO "+user)
	}
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), "DROP USER "+user)
		assert.NoError(t, err)
	})
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	settings.User, settings.Passwd = user, "secret"
	for _, settings.Collation = range []string{"utf8mb4_unicode_ci", "utf8mb4_general_ci", "utf8mb4_bin"} {
		require.NoError(t, newStore(t, openDB(t, settings.FormatDSN()), "outbox").Check(t.Context()), settings.Collation)
	}
	settings.Collation = ""
	for _, params := range []map[string]string{
		nil,
		{"time_zone": "'+02:00'"},
		{"sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY'"},
		{"collation_connection": "utf8mb4_general_ci"},
		{"sql_quote_show_create": "0"},
	} {
		settings.Params = params
		reader := openDB(t, settings.FormatDSN())
		_, err = reader.ExecContext(t.Context(), "DELETE FROM outbox")
		require.ErrorContains(t, err, "denied")
		store := newStore(t, reader, "outbox")
		require.NoError(t, store.Check(t.Context()), params)
		_, err = store.CompareWithScratch(t.Context())
		require.ErrorContains(t, err, "the user needs all rights on `fanout\\_scratch\\_%`.*")
	}
	_, err = db.ExecContext(t.Context(), "GRANT CREATE, DROP ON `fanout\\_scratch\\_%`.* TO "+user)
	require.NoError(t, err)
	settings.Params = nil
	database := driver.ScratchName()
	_, err = newStore(t, openDB(t, settings.FormatDSN()), database+".outbox").made(t.Context(), database)
	require.ErrorContains(t, err, "INSERT command denied")
	assert.Equal(t, []int{0}, column[int](t, db, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+database+"'"))
}

// Whatever a session's settings are, tables that were just made do not differ.
func TestScratch(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	store := newStore(t, openDB(t, dsn), "outbox")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	settings, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	for _, params := range []map[string]string{
		nil,
		{"sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY'"},
		{"collation_connection": "utf8mb4_general_ci"},
		{"sql_quote_show_create": "0"},
	} {
		settings.Params = params
		differences, err := newStore(t, openDB(t, settings.FormatDSN()), "outbox").CompareWithScratch(t.Context())
		require.NoError(t, err, params)
		assert.Empty(t, differences, params)
	}
}
