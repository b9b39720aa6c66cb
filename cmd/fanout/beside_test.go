package main

import (
	"testing"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// beside is what tests have beside a SQLite: other databases, and the hands of a relay that works, or has
// died, while a command looks. make test lays a file over this package that sets it
// (integration/testdata/overlay), since a released module uses only what is public of the others, in
// tests, too. A plain go test skips what needs it.
var beside struct {
	// onEach runs a test on each database that can be had, or on the one whose turn it is.
	onEach   func(t *testing.T, sqlite func(testing.TB) string, test func(t *testing.T, driver outbox.Dialect, dsn string))
	postgres func(t testing.TB) (dsn string) // empty
	complete func(s *shop, broker string, outcome func(id string) *outbox.LastError) error
	claim    func(s *shop, broker string, lease time.Duration) error // what then dies
	hold     func(s *shop, broker string) error                      // defers what is behind a failure
}

func needBeside(t testing.TB, given bool) {
	t.Helper()
	if !given {
		t.Skip("needs servers or a relay's hands that make test has")
	}
}

func newPostgres(t testing.TB) (dsn string) {
	t.Helper()
	needBeside(t, beside.postgres != nil)
	return beside.postgres(t)
}
