package redisstreams

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
)

func describe(rounds []round) string {
	var text strings.Builder
	for _, r := range rounds {
		text.WriteString("|")
		for _, l := range r {
			fmt.Fprint(&text, " ", l.stream, l.waiting)
		}
	}
	return text.String()
}

func TestPlan(t *testing.T) {
	at := func(stream, key string, priority int) brokers.Message {
		return brokers.Message{Destination: stream, OrderingKey: key, Priority: priority}
	}
	for name, c := range map[string]struct {
		msgs []brokers.Message
		want string
	}{
		"nothing":                    {nil, ""},
		"one destination, one round": {[]brokers.Message{at("s", "a", 0), at("s", "b", 0), at("s", "", 0), at("s", "a", 0)}, "| s[0 1 2 3]"},
		"destinations go side by side": {
			[]brokers.Message{at("s", "a", 0), at("u", "b", 0), at("s", "a", 0), at("u", "", 0), at("s", "", 0)}, "| s[0 2 4] u[1 3]",
		},
		"a key that changes its destination starts a round": {
			[]brokers.Message{at("s", "a", 0), at("s", "b", 0), at("u", "a", 0), at("u", "b", 0), at("s", "a", 0)}, "| s[0 1]| u[2 3]| s[4]",
		},
		"without a key, nothing does": {
			[]brokers.Message{at("s", "", 0), at("u", "", 0), at("s", "", 0)}, "| s[0 2] u[1]",
		},
		"low priority goes to the backfill": {
			[]brokers.Message{at("s", "a", 0), at("s", "b", -50), at("s", "c", -49)}, "| s[0 2] s:backfill[1]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			below := -49
			o := (&Settings{BackfillBelow: &below}).options()
			assert.Equal(t, c.want, describe(o.plan(c.msgs, map[string]*shard{})))
		})
	}
	o := new(Settings).options()
	assert.Equal(t, "| s[0]", describe(o.plan([]brokers.Message{at("s", "", -100)}, map[string]*shard{})), "the backfill is off by default")
}

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
