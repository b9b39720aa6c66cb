package testenv

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// RabbitMQ returns the URL of the shared server in FANOUT_TEST_RABBITMQ; without it the test is
// skipped, or fails where servers are required. Other tests use the same virtual host at the same
// time: keep to exchanges and queues whose names begin with [RabbitMQPrefix], and delete them. The
// test links the client, this package does not.
func RabbitMQ(t testing.TB) string {
	t.Helper()
	return need(t, testservers.RabbitMQVariable)
}

// RabbitMQPrefix returns a prefix for the names of this test's exchanges and queues, new at each
// call.
func RabbitMQPrefix(t testing.TB) string {
	t.Helper()
	return "fanout-test." + identifier(t.Name()) + "." + strings.ToLower(rand.Text()[:8]) + "."
}
