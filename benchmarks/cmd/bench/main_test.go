package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// Every scenario runs to its end in small sizes. The scenarios fail by themselves when a message is
// lost, comes twice or is out of order.
func TestShort(t *testing.T) {
	t.Setenv("FANOUT_TEST_POSTGRES", testenv.Postgres(t))
	t.Setenv("FANOUT_TEST_MARIADB", testenv.MySQL(t))
	t.Setenv("FANOUT_TEST_REDIS", testenv.Redis(t))
	for _, line := range []string{
		"targets", "openwriter", "waiting", "followers", "priorities", "brokers", "bulk",
		"drain --broker memory --not-kept --only fanout --workers 2", "drain --database mysql --only unordered", "drain --database sqlite --broker redis --only unordered",
		"drain --broker nats --only unordered --only 2", "drain --broker kafka --only unordered --only 2", "drain --broker rabbitmq --only unordered --only 2",
		"claims --database mysql", "openwriter --database mysql", "waiting --database sqlite", "followers --database mysql",
	} {
		t.Run(line, func(t *testing.T) {
			if strings.Contains(line, "rabbitmq") {
				t.Setenv("FANOUT_TEST_RABBITMQ", testenv.RabbitMQ(t))
			}
			var stdout, stderr bytes.Buffer
			code := run(append(strings.Fields(line), "--short", "--runs=1"), &stdout, &stderr)
			require.Equal(t, exitDone, code, stderr.String())
			assert.NotContains(t, stdout.String(), "NaN")
			assert.NotContains(t, stdout.String(), "not measured")
			if line == "targets" {
				for _, target := range scenario.Targets() {
					assert.Contains(t, stdout.String(), target.What)
				}
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"magic", "drain twice", "drain --fast", "drain --rows=0", "claims --keys=1,0", "claims --database=oracle", "targets --rows=10", "idle --runs=0"} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, run(strings.Fields(line), &stdout, &stderr), line)
		assert.Contains(t, stderr.String(), "bench: ", line)
	}
}
