package testenv

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// MySQL creates an empty database for this test, on MySQL or MariaDB, and returns its DSN, as
// github.com/go-sql-driver/mysql reads it. The test links that driver, this package does not. The
// database is dropped when the test ends. The server is the one in FANOUT_TEST_MYSQL; without it the
// test is skipped, or fails where servers are required.
func MySQL(t testing.TB) string {
	t.Helper()
	dsn, drop := MySQLUntilDropped(t)
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

// MySQLUntilDropped is [MySQL] for several tests: their TestMain drops the database.
func MySQLUntilDropped(t testing.TB) (dsn string, drop func() error) {
	t.Helper()
	server := need(t, testservers.MySQLVariable)
	slash := strings.LastIndexByte(server, '/')
	if slash < 0 {
		t.Fatalf("%s is not a DSN like user:password@tcp(host:port)/", testservers.MySQLVariable)
	}
	_, params, _ := strings.Cut(server[slash+1:], "?")
	if params != "" {
		params = "?" + params
	}
	name := "fanout_test_" + identifier(t.Name()) + "_" + strings.ToLower(rand.Text()[:8])
	if err := databaseAdmin("mysql", server, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4"); err != nil {
		t.Fatalf("testenv: create a database for this test: %v", err)
	}
	return server[:slash+1] + name + params, func() error {
		if err := databaseAdmin("mysql", server, "DROP DATABASE "+name); err != nil {
			return fmt.Errorf("testenv: drop the database of a test: %w", err)
		}
		return nil
	}
}
