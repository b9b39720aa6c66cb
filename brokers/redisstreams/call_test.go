package redisstreams

import (
	"crypto/sha1" // Redis names scripts by it
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/golden"
)

// Whatever the keys of a chunk: each message is added once, by itself exactly where no other has
// its key (and the server's clock is not needed), and the script is told by one number per key
// which messages belong together.
func TestBuild(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f"}), 1, 20).Draw(t, "keys")
		aged := rapid.Bool().Draw(t, "aged")
		var s Settings
		if aged {
			s.MaxAge = 1 << 40
		}
		o := s.options()
		p := &publication{Broker: &Broker{options: o}}
		c, times := &call{shard: &shard{stream: "s"}}, countsOf(keys)
		for i, key := range keys {
			p.msgs = append(p.msgs, brokers.Message{ID: fmt.Sprint("id-", i), OrderingKey: key})
			c.indexes = append(c.indexes, i)
		}
		alone := func(i int) bool { return !aged && (keys[i] == "" || times[keys[i]] == 1) }
		p.build(t.Context(), c, countsOf(keys))

		if all := slices.Sorted(slices.Values(append(slices.Clone(c.plain), c.keyed...))); !slices.Equal(all, c.indexes) {
			t.Fatalf("added are %v of %v", all, c.indexes)
		}
		if !slices.IsSorted(c.plain) || !slices.IsSorted(c.keyed) || len(c.adds) != len(c.plain) || (c.script != nil) != (len(c.keyed) > 0) {
			t.Fatalf("plain %v, %d commands; keyed %v, script %v", c.plain, len(c.adds), c.keyed, c.script)
		}
		for n, i := range c.plain {
			if !alone(i) || !slices.Contains(c.adds[n].Args(), any(&p.msgs[i].ID)) {
				t.Fatalf("message %d of key %q has a command of its own: %v", i, keys[i], c.adds[n].Args())
			}
		}
		rest, keyOf := c.args[min(7, len(c.args)):], map[int]string{}
		for _, i := range c.keyed {
			number, count := rest[0].(int), rest[1].(int)
			if alone(i) || !slices.Contains(rest[:2+count], any(&p.msgs[i].ID)) {
				t.Fatalf("message %d of key %q is the script's: %v", i, keys[i], rest[:2+count])
			}
			known, seen := keyOf[number]
			if seen && known != keys[i] || !seen && slices.Contains(slices.Collect(maps.Values(keyOf)), keys[i]) {
				t.Fatalf("key %q has number %d, and so has %q", keys[i], number, known)
			}
			if keyed := keys[i] != "" && times[keys[i]] > 1; keyed != (number > 0) {
				t.Fatalf("key %q, %d times, has number %d", keys[i], times[keys[i]], number)
			}
			if number > 0 {
				keyOf[number] = keys[i]
			}
			rest = rest[2+count:]
		}
		if len(rest) > 0 {
			t.Fatalf("%d arguments too many", len(rest))
		}
	})
}

// The arguments of a message are its payload and its fields, and as many as the slices have room for.
func TestAppendFields(t *testing.T) {
	t.Parallel()
	full := brokers.Message{
		ID: "1", Type: "T", OrderingKey: "k", CorrelationID: "c", ContentType: "text/plain", Payload: []byte("p"),
		Attributes: []brokers.Attribute{{Name: "a", Value: "1"}, {Name: "b", Value: ""}},
	}
	for _, m := range []brokers.Message{full, {ID: "1", Type: "T", ContentType: brokers.DefaultContentType}} {
		want := []string{"data", string(m.Payload)}
		for name, value := range m.Fields {
			want = append(want, name, value)
		}
		var got []string
		for _, arg := range appendFields(nil, &m) {
			switch a := arg.(type) {
			case string:
				got = append(got, a)
			case *string:
				got = append(got, *a)
			case *payload:
				got = append(got, string(a.Payload))
			}
		}
		assert.Equal(t, want, got)
		assert.Len(t, got, 2*fields(&m))
	}
}

func countsOf(keys []string) map[string]int {
	counts := map[string]int{}
	for _, key := range keys {
		counts[key]++
	}
	return counts
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
