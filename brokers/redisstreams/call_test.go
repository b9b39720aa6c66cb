package redisstreams

import (
	"encoding"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
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

// Whatever the message: its arguments are the payload and what its fields are, and as many as were
// reckoned with.
func TestAppendFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "b", brokers.DefaultContentType})
		m := brokers.Message{
			ID: text.Draw(t, "id"), Type: text.Draw(t, "type"), CorrelationID: text.Draw(t, "correlation"), ContentType: text.Draw(t, "content type"),
			Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "attributes") {
			m.Attributes = append(m.Attributes, brokers.Attribute{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
		}
		want := []string{"data", string(m.Payload)}
		m.Fields(func(name, value string) bool {
			want = append(want, name, value)
			return true
		})
		var got []string
		for _, arg := range appendFields(nil, &m) {
			switch a := arg.(type) {
			case string:
				got = append(got, a)
			case *string:
				got = append(got, *a)
			case encoding.BinaryMarshaler:
				bytes, err := a.MarshalBinary()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(bytes))
			}
		}
		if !slices.Equal(got, want) || len(got) != 2*fields(&m) {
			t.Fatalf("%q, want %q; %d were reckoned with", got, want, 2*fields(&m))
		}
	})
}

func countsOf(keys []string) map[string]int {
	counts := map[string]int{}
	for _, key := range keys {
		counts[key]++
	}
	return counts
}
