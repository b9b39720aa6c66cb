package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
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
	if err := mysqlAdmin(server, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4"); err != nil {
		t.Fatalf("testenv: create a database for this test: %v", err)
	}
	t.Cleanup(func() {
		if err := mysqlAdmin(server, "DROP DATABASE "+name); err != nil {
			t.Errorf("testenv: drop the database of this test: %v", err)
		}
	})
	return server[:slash+1] + name + params
}

// mysqlAdmin executes one statement on a connection of its own, in a time of its own: see
// [postgresAdmin].
func mysqlAdmin(server, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	db, err := sql.Open("mysql", server)
	if err != nil {
		return fmt.Errorf("the test must link github.com/go-sql-driver/mysql: %w", err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
