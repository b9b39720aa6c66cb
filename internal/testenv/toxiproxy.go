package testenv

import (
	"testing"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// Toxiproxy returns the URL of the API in FANOUT_TEST_TOXIPROXY; without it the test is skipped, or
// fails where servers are required. Tests use it through package toxic.
func Toxiproxy(t testing.TB) string {
	t.Helper()
	return need(t, testservers.ToxiproxyVariable)
}
