package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

const (
	requireVariable = "FANOUT_TEST_REQUIRE" // is 1 where a missing server is a failure
	adminTimeout    = time.Minute           // creating and dropping wait for the disk
	longestTestName = 36                    // PostgreSQL cuts names at 63 bytes, and Babelfish appends "_dbo"
)

// need is [Optional], but the test fails where servers are required.
func need(t testing.TB, variable string) string {
	t.Helper()
	if os.Getenv(variable) == "" && os.Getenv(requireVariable) == "1" {
		t.Fatalf("%s is not set, and %s=1 forbids skipping", variable, requireVariable)
	}
	return Optional(t, variable)
}

// Optional returns the value of a variable of package testservers, of a server or of a binary. Without
// it the test is skipped, also where servers are required.
func Optional(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Skip(testservers.Needs(variable))
	}
	return value
}

// Redis returns the URL of the server that all tests share: keep to keys below [RedisPrefix].
func Redis(t testing.TB) string {
	t.Helper()
	return need(t, testservers.RedisVariable)
}

// RabbitMQ returns the URL of the server that all tests share: keep to names below [RabbitMQPrefix].
func RabbitMQ(t testing.TB) string {
	t.Helper()
	return need(t, testservers.RabbitMQVariable)
}

// SQLServer returns the DSN of a database. It is optional, since nothing starts an SQL Server.
func SQLServer(t testing.TB) string {
	t.Helper()
	return Optional(t, testservers.SQLServerVariable)
}

// RabbitMQPrefix returns a new prefix for this test's exchanges and queues, which the test deletes.
func RabbitMQPrefix(t testing.TB) string {
	t.Helper()
	return "fanout-test." + identifier(t.Name()) + "." + random() + "."
}

// RedisPrefix returns a new prefix for this test's keys, which are deleted when the test ends.
func RedisPrefix(t testing.TB) string {
	t.Helper()
	server := Redis(t)
	prefix := "fanout-test:" + identifier(t.Name()) + ":" + random() + ":" // no character that has a meaning in a pattern
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		defer cancel()
		options, err := redis.ParseURL(server)
		check(t, err)
		client := redis.NewClient(options)
		defer client.Close()
		keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		for keys.Next(ctx) {
			client.Unlink(ctx, keys.Val())
		}
		check(t, keys.Err())
	})
	return prefix
}

// Postgres creates an empty database for this test, until it ends, and returns its URL.
func Postgres(t testing.TB) string {
	t.Helper()
	return dropped(t, PostgresUntilDropped)
}

// PostgresUntilDropped is [Postgres] for several tests, whose TestMain drops the database.
func PostgresUntilDropped(t testing.TB) (dsn string, drop func() error) {
	t.Helper()
	server := need(t, testservers.PostgresVariable)
	address, err := url.Parse(server)
	if err != nil || !strings.HasPrefix(address.Scheme, "postgres") { // err would quote the password
		t.Fatalf("%s is not a URL like postgres://user@host:port/database", testservers.PostgresVariable)
	}
	name := database(t)
	// template0 alone can be copied by several tests at a time, and with another locale.
	check(t, onPostgres(server, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"))
	address.Path = "/" + name
	return address.String(), func() error { return onPostgres(server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") }
}

// MySQL creates an empty database for this test, until it ends, and returns its DSN for
// github.com/go-sql-driver/mysql, which the test links. The server is MariaDB where there is one, else MySQL.
func MySQL(t testing.TB) string {
	t.Helper()
	return dropped(t, MySQLUntilDropped)
}

// MySQLAt is [MySQL] on the server of [testservers.MariaDBVariable] or [testservers.MySQLVariable].
func MySQLAt(t testing.TB, variable string) string {
	t.Helper()
	return dropped(t, func(t testing.TB) (string, func() error) {
		t.Helper()
		return mysqlUntilDropped(t, variable)
	})
}

// MySQLUntilDropped is [MySQL] for several tests: their TestMain drops the database.
func MySQLUntilDropped(t testing.TB) (dsn string, drop func() error) {
	t.Helper()
	return mysqlUntilDropped(t, testservers.EitherMySQL())
}

func mysqlUntilDropped(t testing.TB, variable string) (dsn string, drop func() error) {
	t.Helper()
	server := need(t, variable)
	slash := strings.LastIndexByte(server, '/')
	if slash < 0 {
		t.Fatalf("%s is not a DSN like user:password@tcp(host:port)/", variable)
	}
	_, params, found := strings.Cut(server[slash+1:], "?")
	if found {
		params = "?" + params
	}
	name := database(t)
	check(t, on("mysql", server, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4"))
	return server[:slash+1] + name + params, func() error { return on("mysql", server, "DROP DATABASE "+name) }
}

// SQLServerDatabase creates an empty database for this test, until it ends, and returns its DSN. The test
// links the driver.
func SQLServerDatabase(t testing.TB) string {
	t.Helper()
	return dropped(t, func(t testing.TB) (string, func() error) {
		t.Helper()
		server := SQLServer(t)
		address, err := url.Parse(server)
		if err != nil {
			t.Fatalf("%s is not a URL like sqlserver://user:password@host:port", testservers.SQLServerVariable) // err would quote the password
		}
		name := database(t)
		check(t, on("sqlserver", server, "CREATE DATABASE "+name))
		query := address.Query()
		query.Set("database", name)
		address.RawQuery = query.Encode()
		return address.String(), func() error {
			return on("sqlserver", server, "ALTER DATABASE "+name+" SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE "+name)
		}
	})
}

func dropped(t testing.TB, create func(testing.TB) (string, func() error)) string {
	t.Helper()
	dsn, drop := create(t)
	t.Cleanup(func() { check(t, drop()) })
	return dsn
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
}

// onPostgres executes a statement. A test's context has ended before the test's clean-up begins.
func onPostgres(server, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err == nil {
		_, err = conn.Exec(ctx, statement)
		err = errors.Join(err, conn.Close(ctx))
	}
	return err
}

// on executes a statement, as onPostgres does, with a driver that the test links.
func on(driver, server, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	db, err := sql.Open(driver, server)
	if err == nil {
		_, err = db.ExecContext(ctx, statement)
		err = errors.Join(err, db.Close())
	}
	return err
}

// FreePort is [testservers.FreePort].
func FreePort(t testing.TB) string {
	t.Helper()
	port, err := testservers.FreePort(t.Context())
	check(t, err)
	return port
}

// database is a new name that shows, to a person who looks at the server, the test.
func database(t testing.TB) string { return "fanout_test_" + identifier(t.Name()) + "_" + random() } //nolint:thelper // it does not fail

func random() string { return strings.ToLower(rand.Text()[:8]) }

// identifier turns a test's name into a part of a name on a server.
func identifier(test string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return name[:min(len(name), longestTestName)]
}
