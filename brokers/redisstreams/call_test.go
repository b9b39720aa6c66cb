package redisstreams

import (
	"crypto/sha1" // Redis names scripts by it
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/golden"
)

// Whatever the messages: each is planned once, a key is never in two shards of a round, and read
// round by round, shard by shard, it keeps its order.
func TestPlanKeepsKeysInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msgs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) brokers.Message {
			return brokers.Message{
				Destination: rapid.SampledFrom([]string{"s", "u", "v"}).Draw(t, "destination"),
				OrderingKey: rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "key"),
				Priority:    rapid.IntRange(-1, 1).Draw(t, "priority"),
			}
		}), 0, 60).Draw(t, "messages")
		var s Settings
		if rapid.Bool().Draw(t, "backfill") {
			s.BackfillBelow = new(int)
		}
		o := s.options()
		planned, last := map[int]bool{}, map[string]int{}
		for _, r := range o.plan(msgs, map[string]*shard{}) {
			homes := map[string]*shard{}
			for _, l := range r {
				for _, i := range l.waiting {
					m := &msgs[i]
					if planned[i] || l.stream != o.targetOf(m).stream() {
						t.Fatalf("message %d: planned twice, or for the wrong stream %q", i, l.stream)
					}
					planned[i] = true
					if m.OrderingKey == "" {
						continue
					}
					if home := homes[m.OrderingKey]; home != nil && home != l {
						t.Fatalf("key %q is in two shards of a round", m.OrderingKey)
					}
					homes[m.OrderingKey] = l
					if before, found := last[m.OrderingKey]; found && before > i {
						t.Fatalf("key %q: message %d before message %d", m.OrderingKey, before, i)
					}
					last[m.OrderingKey] = i
				}
			}
		}
		if len(planned) != len(msgs) {
			t.Fatalf("%d of %d messages are planned", len(planned), len(msgs))
		}
	})
}

// TestDigest keeps xadd.sha1 to the script; FANOUT_UPDATE_GOLDEN writes it anew.
func TestDigest(t *testing.T) {
	t.Parallel()
	want := fmt.Sprintf("%x\n", sha1.Sum([]byte(source)))
	update, err := golden.Update()
	require.NoError(t, err)
	if update {
		require.NoError(t, os.WriteFile("xadd.sha1", []byte(want), 0o600))
	}
	assert.Equal(t, want, digestText, "FANOUT_UPDATE_GOLDEN=1 go test -run %s", t.Name())
}
