package outbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
)

// What is read without encoding/json is read as encoding/json reads it.
func TestPlainHeaders(t *testing.T) {
	t.Parallel()
	token := rapid.SampledFrom([]string{`{`, `}`, `"`, `:`, `,`, ` `, "\n", `"a"`, `"b"`, `"traceparent"`, `""`, `\`, `\n`, `é`, "\x00", "\x7f", "\u2028", `null`, `1`, `[`, `]`})
	object := rapid.Custom(func(t *rapid.T) string {
		encoded, err := json.Marshal(rapid.MapOfN(rapid.StringMatching(`[ -~é]{0,3}`), rapid.String(), 0, 5).Draw(t, "headers"))
		require.NoError(t, err)
		return string(encoded)
	})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			object,
			rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(token, 0, 12).Draw(t, "tokens"), "") }),
			rapid.Custom(func(t *rapid.T) string { // nearly right
				pairs := rapid.SliceOfN(rapid.SampledFrom([]string{`"a":"1"`, `"b" : "2"`, "\t\"a\":\r\n\"\" ", `"c":"é"`, `"d":"\t"`, ``, `"e"`, `"f":1`}), 0, 4).Draw(t, "pairs")
				return "{" + strings.Join(pairs, ",") + rapid.SampledFrom([]string{"}", "} ", "}}", "", ",}", "} x"}).Draw(t, "end")
			})).Draw(t, "text")
		fast, ok := plainHeaders(text)
		if !ok {
			return
		}
		slow, err := decodeHeaders(text)
		require.NoError(t, err, text)
		assert.Equal(t, slow, fast, text)
	})
	for text, plain := range map[string]bool{
		`{}`: true, ` { } `: true, `{"traceparent":"00-4bf92f35-01"}`: true, "\n{ \"b\" : \"2\" ,\t\"a\":\"1\"}\r\n": true,
		``: false, `{`: false, `{"a":"1",}`: false, `{,"a":"1"}`: false, `{"a":"1"}}`: false, `{"a":"1","a":"2"}`: false, `{"a":"\u0041"}`: false,
		`{"a":"é"}`: false, `{"a":null}`: false, `null`: false, `{"a" "1"}`: false, "{\"a\":\"\x7f\"}": false,
	} {
		_, ok := plainHeaders(text)
		assert.Equal(t, plain, ok, text)
	}
}

// A row's headers say one thing, to whoever reads them.
func TestHeadersAreUnambiguous(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":"1","a":"2"}`:     `outbox: malformed row: column headers is ambiguous: member "a" occurs twice: leave one out`,
		`{"é":"1","\u00e9":""}`: `member "é" occurs twice`,
		`{"a":null}`:            `is not a JSON object of strings`,
		`null`:                  `is not a JSON object of strings`,
	} {
		_, err := ParseHeaders(text)
		var malformed *MalformedError
		require.ErrorAs(t, err, &malformed, text)
		assert.ErrorContains(t, err, want)
	}
	two, err := ParseHeaders(`{"A":"1","a":"2"}`)
	require.NoError(t, err)
	assert.Len(t, two, 2, "names of headers are as the broker takes them")
}

// Ordinary headers cost one allocation.
func TestPlainHeadersAllocations(t *testing.T) {
	const text = `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"a=1"}`
	assert.InDelta(t, 1, testing.AllocsPerRun(100, func() { _, _ = ParseHeaders(text) }), 0)
}

func FuzzParseHeaders(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"b"}`, `[]`, `null`, `{"a":null}`, "{\"\xff\":\"\"}", `{"id":""}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		attributes, err := ParseHeaders(text)
		var malformed *MalformedError
		if err != nil && !errors.As(err, &malformed) {
			t.Fatalf("%q: %v is no *MalformedError", text, err)
		}
		for _, attribute := range attributes {
			if attribute.Name == brokers.FieldID || attribute.Name == brokers.FieldType {
				t.Fatalf("%q: %s got through", text, attribute.Name)
			}
		}
	})
}
