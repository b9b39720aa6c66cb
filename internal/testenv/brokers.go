package testenv

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// scanBatch is how many keys the clean-up looks at per round trip.
const scanBatch = 1000

// Redis returns the URL of the shared server in FANOUT_TEST_REDIS; without it the test is skipped,
// or fails where servers are required. Other tests use the same server at the same time: keep to
// keys below [RedisPrefix], and never flush.
func Redis(t testing.TB) string {
	t.Helper()
	return need(t, testservers.RedisVariable)
}

// RedisPrefix returns a prefix for this test's keys, new at each call. The keys below it are
// deleted when the test ends.
func RedisPrefix(t testing.TB) string {
	t.Helper()
	server := Redis(t)
	prefix := "fanout-test:" + identifier(t.Name()) + ":" + strings.ToLower(rand.Text()[:8]) + ":"
	t.Cleanup(func() {
		if err := deleteKeys(server, prefix); err != nil {
			t.Errorf("testenv: delete the keys of this test: %v", err)
		}
	})
	return prefix
}

// deleteKeys deletes the keys below prefix. The prefix holds no character that has a meaning in a
// pattern.
func deleteKeys(server, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	options, err := redis.ParseURL(server)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	keys := client.Scan(ctx, 0, prefix+"*", scanBatch).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

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

// Toxiproxy returns the URL of the API in FANOUT_TEST_TOXIPROXY; without it the test is skipped, or
// fails where servers are required. Tests use it through package toxic.
func Toxiproxy(t testing.TB) string {
	t.Helper()
	return need(t, testservers.ToxiproxyVariable)
}

// Optional returns the value of a variable of package testservers that make test-all sets, the one
// of an optional server or of its binary. Without it the test is skipped, also where servers are
// required.
func Optional(t testing.TB, variable string) string {
	t.Helper()
	Uses(t, variable)
	value := os.Getenv(variable)
	if value == "" {
		t.Skip(testservers.Missing(variable))
	}
	return value
}
