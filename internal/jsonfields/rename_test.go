package jsonfields

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/strictjson"
)

func TestCamelCase(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"ID": "id", "IDs": "ids", "OrderID": "orderId", "OrderIDs": "orderIds", "IDsOfOrders": "idsOfOrders", "HTTPServer": "httpServer", "Order": "order",
		"XMLHTTPRequest": "xmlhttpRequest", "X": "x", "XAxis": "xAxis", "ABTest": "abTest", "IsOK": "isOk", "SHA256Sum": "sha256Sum", "SHA256": "sha256",
		"Line2Text": "line2Text", "B2B": "b2B", "Order_ID": "order_Id", "IStatus": "iStatus", "ASet": "aSet", "URLsSeen": "urlsSeen", "As": "as",
		"Größe": "größe", "ÄußereID": "äußereId", "İd": "İd", "Ǆungla": "ǆungla",
	} {
		assert.Equal(t, want, camelCase(name))
		assert.True(t, strings.EqualFold(name, camelCase(name)))
	}
}

// goNames are distinct also where case is ignored.
var goNames = []string{"ID", "OrderID", "HTTPServer", "Lines", "X", "ABTest", "IDs", "SHA256Sum", "Größe", "Order_ID", "Name", "B2B"}

// twoTypes draws a type and its twin, which has each name in its tag that the first one is to have in camelCase.
func twoTypes(t *rapid.T, depth int) (plain, tagged reflect.Type) {
	scalars := []reflect.Type{
		reflect.TypeFor[string](), reflect.TypeFor[int64](), reflect.TypeFor[float64](), reflect.TypeFor[bool](), reflect.TypeFor[[]byte](), reflect.TypeFor[any](),
		reflect.TypeFor[time.Time](), reflect.TypeFor[uuid.UUID](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[json.Number](), reflect.TypeFor[*string](),
	}
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind = 4
	} else if depth > 4 {
		kind = 5
	}
	if kind == 5 {
		scalar := rapid.SampledFrom(scalars).Draw(t, "scalar")
		return scalar, scalar
	}
	if kind < 4 {
		a, b := twoTypes(t, depth+1)
		switch kind {
		case 0:
			return reflect.PointerTo(a), reflect.PointerTo(b)
		case 1:
			return reflect.SliceOf(a), reflect.SliceOf(b)
		case 2:
			return reflect.ArrayOf(2, a), reflect.ArrayOf(2, b)
		default:
			return reflect.MapOf(reflect.TypeFor[string](), a), reflect.MapOf(reflect.TypeFor[string](), b)
		}
	}
	var plains, taggeds []reflect.StructField
	for i, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(goNames), 0, 5, rapid.ID).Draw(t, "names") {
		a, b := twoTypes(t, depth+1)
		embedded := a.Kind() == reflect.Struct && a.NumMethod() == 0 && rapid.Bool().Draw(t, "embedded")
		options := rapid.SampledFrom([]string{"", ",omitempty", ",string", ",omitzero", "-"}).Draw(t, "options")
		own := rapid.SampledFrom([]string{"", "", fmt.Sprintf("<Name>&%d-%d", depth, i)}).Draw(t, "own name")
		named := own
		if own == "" && !embedded {
			named = camelCase(name)
		}
		if options == "-" {
			own, named = "", ""
		}
		tag := func(name string) reflect.StructTag { return reflect.StructTag(fmt.Sprintf("json:%q", name+options)) }
		plains = append(plains, reflect.StructField{Name: name, Type: a, Tag: tag(own), Anonymous: embedded})
		taggeds = append(taggeds, reflect.StructField{Name: name, Type: b, Tag: tag(named), Anonymous: embedded})
	}
	return reflect.StructOf(plains), reflect.StructOf(taggeds)
}

// fill gives two values of twin types the same content.
func fill(r *rand.Rand, a, b reflect.Value, depth int) {
	texts := []string{"", "ID", `"OrderID":`, "\\", "a\nb", "<&>", "\u2028", "é", "{[", "]}", ","}
	text := func() string { return texts[r.IntN(len(texts))] }
	both := func(value any) { a.Set(reflect.ValueOf(value)); b.Set(reflect.ValueOf(value)) }
	switch a.Interface().(type) {
	case time.Time:
		both(time.Unix(r.Int64N(1<<32), r.Int64N(1e9)).UTC())
		return
	case uuid.UUID:
		both(uuid.UUID{byte(r.Int()), 1})
		return
	case json.RawMessage:
		both(json.RawMessage(`{"ID": [1.50, {"OrderID":"\u0041"}]}`))
		return
	case json.Number:
		both(json.Number([]string{"1.0", "1e5", "-0", "12345678901234567890.0"}[r.IntN(4)]))
		return
	case []byte:
		both([]byte(text()))
		return
	}
	switch a.Kind() {
	case reflect.String:
		both(text())
	case reflect.Int64:
		both(r.Int64() >> r.IntN(64))
	case reflect.Float64:
		both([]float64{0, 1.5, 1e21, 1e-7, math.MaxFloat64}[r.IntN(5)])
	case reflect.Bool:
		both(r.IntN(2) == 0)
	case reflect.Interface:
		if r.IntN(3) > 0 {
			both([]any{struct{ OrderID string }{text()}, map[string]any{"ID": []any{text(), 1}}, 1.5}[r.IntN(3)])
		}
	case reflect.Pointer:
		if r.IntN(4) > 0 {
			a.Set(reflect.New(a.Type().Elem()))
			b.Set(reflect.New(b.Type().Elem()))
			fill(r, a.Elem(), b.Elem(), depth+1)
		}
	case reflect.Slice:
		if n := r.IntN(4) - 1; n >= 0 {
			a.Set(reflect.MakeSlice(a.Type(), n, n))
			b.Set(reflect.MakeSlice(b.Type(), n, n))
			for i := range n {
				fill(r, a.Index(i), b.Index(i), depth+1)
			}
		}
	case reflect.Array:
		for i := range a.Len() {
			fill(r, a.Index(i), b.Index(i), depth+1)
		}
	case reflect.Map:
		a.Set(reflect.MakeMap(a.Type()))
		b.Set(reflect.MakeMap(b.Type()))
		for range r.IntN(3) {
			key := reflect.ValueOf(text())
			x, y := reflect.New(a.Type().Elem()).Elem(), reflect.New(b.Type().Elem()).Elem()
			fill(r, x, y, depth+1)
			a.SetMapIndex(key, x)
			b.SetMapIndex(key, y)
		}
	case reflect.Struct:
		for i := range a.NumField() {
			fill(r, a.Field(i), b.Field(i), depth+1)
		}
	default:
		panic(a.Kind())
	}
}

func encode(t require.TestingT, v any, escapeHTML bool) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(escapeHTML)
	require.NoError(t, e.Encode(v))
	return bytes.TrimSpace(buf.Bytes())
}

// Renaming writes, byte for byte, what encoding/json writes of a type that has these names in its tags; and what it has
// written is decoded as before.
func TestRenameIsWhatTagsWouldDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain, tagged := twoTypes(t, 0)
		a, b := reflect.New(plain), reflect.New(tagged)
		fill(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), a.Elem(), b.Elem(), 0)
		r, err := CamelCase(plain)
		require.NoError(t, err)
		before := encode(t, a.Interface(), false)
		given := bytes.Clone(before)
		after := r.Rename(before)
		require.Equal(t, string(encode(t, b.Interface(), false)), string(after))
		require.Equal(t, given, before, "what is given stays")

		first, second := reflect.New(plain), reflect.New(plain)
		require.NoError(t, strictjson.UnmarshalLoose(before, first.Interface()))
		require.NoError(t, strictjson.UnmarshalLoose(after, second.Interface()))
		require.Equal(t, first.Interface(), second.Interface())
		require.NoError(t, json.Unmarshal(after, second.Interface()))
		require.Equal(t, first.Interface(), second.Interface())
	})
}

type (
	ownJSON struct{ OrderID string }
	ownText struct{ OrderID string }
	tree    struct {
		NodeID   string
		Children []tree
		Next     *tree `json:"next"`
		ByName   map[string]*tree
	}
	chain   []chain
	pointer *pointer
	base    struct{ BaseID, Hidden string }
	Deeper  struct{ base }
)

func (ownJSON) MarshalJSON() ([]byte, error)  { return []byte(`{"OrderID":1}`), nil }
func (*ownText) MarshalText() ([]byte, error) { return []byte("OrderID"), nil }

func TestRename(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value any
		want  string // empty: the same
	}{
		{
			struct {
				A ownJSON
				B *ownText
				C ownText // which has no address here, and is left alone all the same
				D map[ownKey]base
				E any
			}{B: &ownText{}, C: ownText{"1"}, D: map[ownKey]base{{"K"}: {"1", "2"}}, E: base{"3", "4"}},
			`{"a":{"OrderID":1},"b":"OrderID","c":{"OrderID":"1"},"d":{"OrderID K":{"baseId":"1","hidden":"2"}},"e":{"BaseID":"3","Hidden":"4"}}`,
		},
		{
			tree{"1", []tree{{NodeID: "2"}}, &tree{NodeID: "3"}, map[string]*tree{"NodeID": nil}},
			`{"nodeId":"1","children":[{"nodeId":"2","children":null,"next":null,"byName":null}],"next":{"nodeId":"3","children":null,"next":null,"byName":null},"byName":{"NodeID":null}}`,
		},
		{struct {
			*Deeper
			Hidden int
		}{&Deeper{base{"1", "2"}}, 3}, `{"baseId":"1","hidden":3}`},
		{[]map[string][1]base{{"BaseID": {{"1", ""}}}}, `[{"BaseID":[{"baseId":"1","hidden":""}]}]`},
		{chain{{}, {}}, ""},
		{struct {
			A pointer `json:"A"`
			B string  `json:"B"`
		}{}, ""},
		{time.Time{}, ""},
		{"OrderID", ""},
		{ownJSON{}, ""},
	} {
		r, err := CamelCase(reflect.TypeOf(test.value))
		require.NoError(t, err)
		text := encode(t, test.value, false)
		if test.want == "" {
			assert.Nil(t, r)
			test.want = string(text)
		}
		assert.Equal(t, test.want, string(r.Rename(text)))
	}
	r, err := CamelCase(reflect.TypeFor[*base]())
	require.NoError(t, err)
	assert.Equal(t, "null", string(r.Rename([]byte("null"))))
}

type ownKey struct{ K string }

func (k ownKey) MarshalText() ([]byte, error) { return []byte("OrderID " + k.K), nil }

// What decoders could not tell apart is refused.
func TestNamesThatBecomeOne(t *testing.T) {
	t.Parallel()
	type twice struct{ ID, Id string } //nolint:revive // the name is the point
	for want, value := range map[string]any{
		"ID and Id of jsonfields.twice would have one name in camelCase, \"id\"": []twice{},
		"OrderID and Other of struct": struct {
			OrderID string
			Other   string `json:"orderId"`
		}{},
		"Other and OrderID of struct": struct {
			OrderID string
			Other   string `json:"ORDERID"`
		}{},
		"BaseID and BaseId of struct { jsonfields.base; BaseId string } would have on": map[string]struct {
			base
			BaseId string //nolint:revive // the name is the point
		}{},
	} {
		_, err := CamelCase(reflect.TypeOf(value))
		require.ErrorContains(t, err, want)
	}
	r, err := CamelCase(reflect.TypeOf(struct { // which encoding/json tells apart by itself
		A string `json:"ID"`
		B string `json:"id"`
	}{}))
	require.NoError(t, err)
	assert.Nil(t, r)
}

// Whatever is given, nothing panics and nothing but names changes.
func FuzzRename(f *testing.F) {
	r, err := CamelCase(reflect.TypeFor[tree]())
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{`{"NodeID":"a","Children":[{"NodeID":"\"}"}],"next":{"ByName":{"NodeID":{"NodeID":1}}}}`, `{"NodeID`, `[}`, `{"a" 1}`, `{,}`, `"`, `{"`, `{"\`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := string(r.Rename([]byte(text)))
		if !strings.EqualFold(text, got) {
			t.Errorf("%q became %q", text, got)
		}
		if json.Valid([]byte(text)) != json.Valid([]byte(got)) {
			t.Errorf("%q became %q", text, got)
		}
	})
}
