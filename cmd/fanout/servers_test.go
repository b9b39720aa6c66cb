package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"hash/fnv"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// dialects are the databases that tests run on. Without a server, those that need it are skipped.
var dialects = []struct {
	dialect outbox.Dialect
	dsn     func(t testing.TB) string
}{
	{outbox.SQLite, func(t testing.TB) string { return filepath.Join(t.TempDir(), "outbox.db") }},
	{outbox.Postgres, newPostgres},
	{outbox.MySQL, newMySQL},
	{outbox.SQLServer, newSQLServer},
}

// onEach runs a test on one database whose server is there: the name of the test and FANOUT_TEST_SEED choose it.
// With FANOUT_TEST_LONG=1 it runs on each.
func onEach(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Helper()
	h := fnv.New32a()
	_, _ = h.Write([]byte(os.Getenv("FANOUT_TEST_SEED") + t.Name()))
	first, long := int(h.Sum32()>>8)%len(dialects), os.Getenv("FANOUT_TEST_LONG") == "1"
	for i, ran := 0, false; i < len(dialects) && !ran; i++ {
		on := dialects[(first+i)%len(dialects)]
		t.Run(string(on.dialect), func(t *testing.T) {
			t.Cleanup(func() { ran = !long && !t.Skipped() })
			test(t, newShop(t, on.dialect, on.dsn(t)))
		})
	}
}

// server is the value of a variable that names a server, or skips the test. FANOUT_TEST_REQUIRE=1 makes a
// missing server a failure.
func server(t testing.TB, variable string) string {
	t.Helper()
	dsn := os.Getenv(variable)
	if dsn == "" {
		if os.Getenv("FANOUT_TEST_REQUIRE") == "1" && variable != "FANOUT_TEST_SQLSERVER" {
			t.Fatalf("%s is not set", variable)
		}
		t.Skipf("%s is not set", variable)
	}
	return dsn
}

// create creates a database for this test alone, and drops it afterwards.
func create(t testing.TB, driver, server, options string, drop func(name string) string) (name string) {
	t.Helper()
	name = "fanout_test_" + strings.ToLower(rand.Text()[:16])
	exec := func(statement string) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		db, err := sql.Open(driver, server)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.ExecContext(ctx, statement)
		return err
	}
	require.NoError(t, exec("CREATE DATABASE "+name+options))
	t.Cleanup(func() { assert.NoError(t, exec(drop(name))) })
	return name
}

func newPostgres(t testing.TB) (dsn string) {
	t.Helper()
	at := server(t, "FANOUT_TEST_POSTGRES")
	address, err := url.Parse(at)
	require.NoError(t, err)
	address.Path = "/" + create(t, "pgx", at, " TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'", func(name string) string {
		return "DROP DATABASE " + name + " WITH (FORCE)"
	})
	return address.String()
}

func newMySQL(t testing.TB) (dsn string) {
	t.Helper()
	variable := "FANOUT_TEST_MARIADB"
	if os.Getenv(variable) == "" && os.Getenv("FANOUT_TEST_MYSQL") != "" {
		variable = "FANOUT_TEST_MYSQL"
	}
	at := server(t, variable)
	slash := strings.LastIndexByte(at, '/')
	name := create(t, "mysql", at, " CHARACTER SET utf8mb4", func(name string) string { return "DROP DATABASE " + name })
	_, parameters, has := strings.Cut(at[slash:], "?")
	if has {
		name += "?" + parameters
	}
	return at[:slash+1] + name
}

func newSQLServer(t testing.TB) (dsn string) {
	t.Helper()
	at := server(t, "FANOUT_TEST_SQLSERVER")
	address, err := url.Parse(at)
	require.NoError(t, err)
	query := address.Query()
	query.Set("database", create(t, "sqlserver", at, "", func(name string) string {
		return "ALTER DATABASE " + name + " SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE " + name
	}))
	address.RawQuery = query.Encode()
	return address.String()
}
