package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// refusing is a broker that fails messages of the type "fails", and counts the deliveries of the
// others.
type refusing struct {
	mu   sync.Mutex
	seen map[string]int
}

func (r *refusing) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	results, failed := make([]brokers.Result, len(messages)), map[string]bool{}
	for i, m := range messages {
		switch {
		case m.OrderingKey != "" && failed[m.OrderingKey]:
			results[i].Err = brokers.ErrNotSent
		case m.Type == "fails":
			results[i].Err = brokers.Permanent(errors.New("refused by the test"))
			failed[m.OrderingKey] = true
		case m.Type == "fails for now":
			results[i].Err = brokers.Retryable(errors.New("refused by the test"))
			failed[m.OrderingKey] = true
		default:
			r.seen[m.ID]++
		}
	}
	return results
}

func (*refusing) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }
func (*refusing) Ping(context.Context) error         { return nil }
func (*refusing) Close(context.Context) error        { return nil }

func (r *refusing) deliveries() map[int]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	times := map[int]int{}
	for _, n := range r.seen {
		times[n]++
	}
	return times
}

// longKey is text that no index makes smaller.
func longKey(random *rand.Rand, bytes int) string {
	var key strings.Builder
	for key.Len() < bytes {
		fmt.Fprintf(&key, "%016x", random.Uint64())
	}
	return key.String()[:bytes]
}

// TestLongKeysCostThemselves: on a table whose CHECKs an operator has dropped, rows with keys that
// no index can hold end by themselves. Neither are their neighbours sent twice, nor is anything
// else kept from being taken out of the claim's way.
func TestLongKeysCostThemselves(t *testing.T) {
	t.Parallel()
	for _, policy := range []outbox.Policy{{}, {BlockAbandoned: true}} {
		t.Run(fmt.Sprintf("BlockAbandoned=%t", policy.BlockAbandoned), func(t *testing.T) {
			t.Parallel()
			table := fmt.Sprintf("long_keys_%t", policy.BlockAbandoned)
			store := openStore(t, testenv.Postgres(t), table)
			_, err := store.Migrate(t.Context())
			require.NoError(t, err)
			exec := func(text string, args ...any) {
				t.Helper()
				_, err := store.pool.Exec(t.Context(), strings.ReplaceAll(text, "{t}", table), args...)
				require.NoError(t, err, text)
			}
			exec("ALTER TABLE {t} DROP CONSTRAINT IF EXISTS {t}_ordering_key, DROP CONSTRAINT IF EXISTS {t}_bounds")
			random := rand.New(rand.NewPCG(1, 2))
			insert := func(eventType string, key any, more string) {
				exec("INSERT INTO {t} (message_id, target_broker, stream, type, ordering_key, available_at, payload) VALUES ($1, 'b', 's', $2, $3, "+more+", '')",
					uuid.New(), eventType, key)
			}
			const neighbours = 40
			for _, bytes := range []int{3_000, 8_000} {
				for _, kind := range []string{"fails", "fails for now"} {
					key := longKey(random, bytes)
					for range 20 { // more than a claim holds
						insert(kind, key, "NULL")
					}
				}
				insert("scheduled", longKey(random, bytes), "now() + interval '1 hour'")
			}
			for n := range 30 {
				insert("fails for now", "stubborn", "NULL")
				insert("scheduled", fmt.Sprint("later-", n), "now() + interval '1 hour'")
			}
			for n := range neighbours {
				insert("passes", fmt.Sprint("neighbour-", n), "NULL")
			}
			broker := &refusing{seen: map[string]int{}}
			policy.Workers, policy.BatchSize = 4, 10
			policy.PollMin, policy.PollMax, policy.Lease = time.Millisecond, 10*time.Millisecond, time.Second
			policy.Retry = outbox.Retry{BaseDelay: time.Hour, MaxDelay: time.Hour}
			proc, err := relay.NewProcessor(relay.ProcessorConfig{
				Database: "test", Broker: "b", Store: store, Target: broker, Policy: policy, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- proc.Run(ctx) }()
			defer func() { stop(); require.NoError(t, <-done) }()
			count := func(where string) (n int) {
				require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" WHERE "+where).Scan(&n))
				return n
			}
			assert.Eventually(t, func() bool { return count("status = 'published'") == neighbours }, 20*time.Second, 5*time.Millisecond, "the shards go on")
			assert.Eventually(t, func() bool {
				return count("octet_length(ordering_key) > 512 AND type <> 'scheduled' AND status = 'abandoned' AND last_error LIKE '%ordering_key%'") == 80
			}, 20*time.Second, 5*time.Millisecond, "whoever cannot be deferred is abandoned, with the reason")
			assert.Eventually(t, func() bool { return count("ordering_key = 'stubborn' AND deferred") == 30 }, 20*time.Second, 5*time.Millisecond, "the others are deferred")
			assert.Equal(t, map[int]int{1: neighbours}, broker.deliveries(), "each neighbour was delivered once")
		})
	}
}
