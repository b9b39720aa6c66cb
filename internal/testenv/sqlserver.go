package testenv

import (
	"os"
	"testing"
)

// sqlServerVariable names a SQL Server for its tests. None is started for them: its images are
// large, its licence is its own, and it does not run everywhere.
const sqlServerVariable = "FANOUT_TEST_SQLSERVER"

// SQLServer returns the DSN in FANOUT_TEST_SQLSERVER. Without it the test is skipped, also where
// servers are required.
func SQLServer(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv(sqlServerVariable)
	if dsn == "" {
		t.Skipf("SQL Server: no server given: %s is not set (sqlserver://user:password@host:port?database=name)",
			sqlServerVariable)
	}
	return dsn
}
