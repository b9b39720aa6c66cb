package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// SQLServer returns the DSN in FANOUT_TEST_SQLSERVER. Without it the test is skipped, also where
// servers are required.
func SQLServer(t testing.TB) string {
	t.Helper()
	Uses(t, testservers.SQLServerVariable)
	dsn := os.Getenv(testservers.SQLServerVariable)
	if dsn == "" {
		t.Skipf("SQL Server: no server given: %s is not set (sqlserver://user:password@host:port?database=name)",
			testservers.SQLServerVariable)
	}
	return dsn
}

// SQLServerDatabase creates an empty database for this test and returns its DSN, for tests that
// need the default names of tables. The database is dropped when the test ends, whoever is still
// connected. The server is that of [SQLServer].
func SQLServerDatabase(t testing.TB) string {
	t.Helper()
	server := SQLServer(t)
	address, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s is not a URL like sqlserver://user:password@host:port", testservers.SQLServerVariable) // err would quote the password
	}
	name := "fanout_test_" + identifier(t.Name()) + "_" + strings.ToLower(rand.Text()[:8])
	if err := databaseAdmin("sqlserver", server, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("testenv: create a database for this test: %v", err)
	}
	t.Cleanup(func() {
		// Connections of the pools that were closed may still be on their way out.
		err := databaseAdmin("sqlserver", server, "ALTER DATABASE "+name+" SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE "+name)
		if err != nil {
			t.Errorf("testenv: drop the database of this test: %v", err)
		}
	})
	query := address.Query()
	query.Set("database", name)
	address.RawQuery = query.Encode()
	return address.String()
}

// databaseAdmin executes a statement on a connection of its own, in a time of its own: see
// [postgresAdmin]. The test links the driver.
func databaseAdmin(driver, server, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	db, err := sql.Open(driver, server)
	if err != nil {
		return fmt.Errorf("the test must link the driver %s: %w", driver, err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
