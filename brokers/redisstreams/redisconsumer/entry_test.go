package redisconsumer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0-0", "1526919030474-55", "18446744073709551615-18446744073709551615"} {
		id, err := parseID(text)
		require.NoError(t, err)
		assert.Equal(t, text, id.String())
	}
	for _, text := range []string{"", "1", "1-", "-1", "a-1", "1-a", "1-2-3", "18446744073709551616-0"} {
		_, err := parseID(text)
		assert.Error(t, err, "%q", text)
	}
	a, b, c := entryID{1, 2}, entryID{1, 3}, entryID{2, 0}
	assert.True(t, a.before(b))
	assert.True(t, b.before(c))
	assert.False(t, c.before(a))
	assert.False(t, a.before(a))
	assert.Equal(t, b, a.next())
	assert.Equal(t, c, entryID{1, 1<<64 - 1}.next())
}

func TestHashTags(t *testing.T) {
	t.Parallel()
	assert.True(t, together("{a}", "{a}:dead"))
	assert.True(t, together("x{a}y", "a"))
	assert.False(t, together("a", "a:dead"))
	assert.False(t, together("{}a", "{}a:dead"), "an empty tag is none")
	assert.False(t, together("{a", "{a:dead"))
}

// Whatever stands in an entry: a message comes of it that has what there is, or an error.
func FuzzDecode(f *testing.F) {
	f.Add("data", `{"data":{},"metadata":{}}`, "id", "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6c")
	f.Add("data", `{"specversion":"1.0","id":"7","source":"/a","type":"com.example.paid","partitionkey":"k"}`, "type", "T")
	f.Add("data", `{"x":1}`, "ce-specversion", "1.0")
	f.Add("other", "\xff", "data", "")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		fields := map[string]string{name1: value1, name2: value2}
		payload, has := fields["data"]
		r := &run{Consumer: &Consumer{}}
		d, err := r.newDelivery(&feed{stream: &stream{name: "s", source: "s"}}, "1526919030474-1", 3, fields)
		require.NoError(t, err)
		m := d.entry.Message
		require.NotNil(t, m)
		assert.Equal(t, payload, string(m.Payload))
		assert.NotContains(t, m.Attributes, "data")
		assert.Equal(t, "s", m.Source)
		assert.Equal(t, "1526919030474-1", m.Position)
		assert.Equal(t, 3, m.Deliveries)
		assert.Equal(t, int64(1526919030474), m.Published.UnixMilli())
		if d.entry.Broken == nil {
			require.NotNil(t, m.Envelope)
			assert.True(t, has)
		} else {
			assert.Nil(t, m.Envelope)
		}
		for name, value := range fields {
			if name != "data" {
				assert.Equal(t, value, m.Attributes[name])
			}
		}
	})
}

// What no server of ours says is an error, and no panic.
func TestStrangeAnswers(t *testing.T) {
	t.Parallel()
	for _, answer := range []any{nil, "text", int64(1), []any{nil}, []any{[]any{}}, []any{[]any{int64(1)}}, []any{[]any{"1-1", "x", []any{}}}, []any{[]any{"1-1", int64(1), "x"}}} {
		_, err := entriesOf(answer)
		assert.ErrorIs(t, err, errAnswer, "%v", answer)
	}
	entries, err := entriesOf([]any{[]any{"1-1"}, []any{"1-2", int64(2), []any{"a", "b", "a", "c", "odd"}}})
	require.NoError(t, err)
	assert.Equal(t, []taken{{id: "1-1"}, {"1-2", 2, map[string]string{"a": "c"}}}, entries)
}
