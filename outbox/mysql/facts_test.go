package mysql

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/schemacheck/schematest"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// Each small change of an expression is noticed.
func TestCheckMutants(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	testenv.OneStepAtATime(t)
	store := newStore(t, openDB(t, testenv.MySQL(t)), "outbox")
	want, err := store.wanted(1)
	require.NoError(t, err)
	schematest.Mutants(t, store.evaluation(), want, `COALESCE\(LENGTH\(\w+\), (01|10)\)|, 256\), 10\)|\+ 18, (321|120)\)`)
}

// The check writes nothing: a user who may only read the tables can do it. It leaves the session's
// time zone as it was, and what it evaluates is the same whatever the session's settings are.
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
		reader.SetMaxOpenConns(2)
		_, err = reader.ExecContext(t.Context(), "DELETE FROM outbox")
		require.ErrorContains(t, err, "denied")
		require.NoError(t, newStore(t, reader, "outbox").Check(t.Context()), params)
		if zone := params["time_zone"]; zone != "" {
			for range 2 {
				var now string
				require.NoError(t, reader.QueryRowContext(t.Context(), "SELECT @@time_zone").Scan(&now))
				assert.Equal(t, strings.Trim(zone, "'"), now)
			}
		}
	}
}
