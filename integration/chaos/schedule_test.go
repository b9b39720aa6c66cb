//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func wholeCluster() cluster {
	return cluster{
		producers: []string{"producer-0", "producer-1"}, relays: []string{"relay-0", "relay-1", "relay-2"}, observers: []string{"observer-redis", "observer-nats"}, projectors: []string{"projector-0"},
		links:   []string{"producer-0/database", "relay-0/database", "relay-0/redis", "relay-1/pubsub"},
		servers: []Kind{DatabaseFast, DatabaseImmediate, DatabaseKill, RedisTerm, RedisKill, RabbitMQTerm, RabbitMQKill, NATSTerm, NATSKill, KafkaTerm, KafkaKill, KafkaFreeze, KafkaQuorum},
		nodes:   map[string][]string{"database": {"database"}, "redis": {"redis"}, "rabbitmq": {"rabbitmq"}, "nats": {"nats"}, "kafka": {"kafka-1", "kafka-2", "kafka-3"}},
		strains: []Kind{LockRows, UpdateRows, StopInPipeline}, clocks: true, lease: 3 * time.Second,
	}
}

// A schedule is what its seed and options say, each time; no target has two faults at a time, and
// all are over in time.
func TestSchedule(t *testing.T) {
	t.Parallel()
	everybody := wholeCluster()
	rapid.Check(t, func(t *rapid.T) {
		options := Options{
			Seed: rapid.Uint64().Draw(t, "seed"), For: time.Duration(rapid.IntRange(1, 300).Draw(t, "seconds")) * time.Second,
			Every: time.Duration(rapid.IntRange(200, 5000).Draw(t, "every")) * time.Millisecond,
		}.withDefaults()
		drawn := everybody.schedule(options)
		require.Equal(t, drawn, everybody.schedule(options))
		busy, last := map[string]time.Duration{}, time.Duration(0)
		for _, fault := range drawn {
			require.GreaterOrEqual(t, fault.At, last)
			require.GreaterOrEqual(t, fault.At, busy[fault.Target], fault)
			require.LessOrEqual(t, fault.At+fault.For, options.For)
			require.Contains(t, everybody.targets(fault.Kind), fault.Target)
			require.LessOrEqual(t, fault.Skew.Abs(), 10*time.Minute)
			if fault.Kind == Stop || fault.Kind == StopInPipeline {
				require.Greater(t, fault.For, options.Lease)
			}
			busy[fault.Target], last = fault.At+fault.For, fault.At
		}
	})
}
