package testenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

const (
	adminTimeout    = time.Minute // creating and dropping wait for the disk
	longestTestName = 40          // PostgreSQL cuts names at 63 bytes
)

// Postgres creates an empty database for this test and returns its URL. The database is dropped
// when the test ends, whoever is still connected. The server is the one in FANOUT_TEST_POSTGRES;
// without it the test is skipped, or fails where servers are required.
func Postgres(t testing.TB) string {
	t.Helper()
	dsn, drop := PostgresUntilDropped(t)
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

// PostgresUntilDropped is [Postgres] for several tests: their TestMain drops the database.
func PostgresUntilDropped(t testing.TB) (dsn string, drop func() error) {
	t.Helper()
	server := need(t, testservers.PostgresVariable)
	address, err := url.Parse(server)
	if err != nil || (address.Scheme != "postgres" && address.Scheme != "postgresql") {
		t.Fatalf("%s is not a URL like postgres://user@host:port/database", testservers.PostgresVariable)
	}
	name := "fanout_test_" + identifier(t.Name()) + "_" + strings.ToLower(rand.Text()[:8])
	database := pgx.Identifier{name}.Sanitize()
	// template0 accepts no connections, so that tests can copy it at the same time; and it alone
	// allows to choose a locale, so that text sorts the same way on every server.
	if err := postgresAdmin(server, "CREATE DATABASE "+database+" TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"); err != nil {
		t.Fatalf("testenv: create a database for this test: %v", err)
	}
	address.Path = "/" + name
	return address.String(), func() error {
		if err := postgresAdmin(server, "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("testenv: drop the database of a test: %w", err)
		}
		return nil
	}
}

// postgresAdmin executes one statement on a connection of its own. It has its own time too: a
// test's context has ended before the test's clean-up begins.
func postgresAdmin(server, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// identifier turns a test's name into the middle of a database's name, for whoever looks at the
// server meanwhile.
func identifier(test string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '_'
		}
	}, test)
	return name[:min(len(name), longestTestName)]
}
