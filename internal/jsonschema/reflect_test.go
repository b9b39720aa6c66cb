package jsonschema_test

import (
	"encoding/json"
	"math/big"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/jsonschema"
)

// What encoding/json writes of random values is checked against these schemas in the module
// integration, by a validator that is not ours. Here are the forms that they have.

type (
	inner   struct{ A int }
	another struct{ A int }
	tagged  struct {
		Named int `json:"A"`
	}
	list    []list
	node    struct{ Next *node }
	color   string
	shade   color
	opaque  struct{}
	badEnum []int
)

func (color) Enum() []any                   { return []any{color("red"), color("blue")} }
func (opaque) MarshalJSON() ([]byte, error) { return []byte("1"), nil }
func (badEnum) Enum() []any                 { return []any{1} }

func TestOf(t *testing.T) {
	t.Parallel()
	for want, of := range map[string]reflect.Type{
		// Fields of one name: the least deep one, then the one with a tag, and none where that decides nothing.
		`{"type":"object"}`: reflect.TypeFor[struct {
			inner
			another
		}](),
		`{"type":"object","properties":{"A":{"type":"integer","format":"int64"}},"required":["A"]}`: reflect.TypeFor[struct {
			inner
			tagged
		}](),
		`{"type":"object","properties":{"A":{"type":"string"}},"required":["A"]}`: reflect.TypeFor[struct {
			inner
			A string
		}](),
		// Embedded under a name it is a field like any other.
		`{"type":"object","properties":{"in":{"$ref":"#/$defs/inner"}},"required":["in"],` +
			`"$defs":{"inner":{"type":"object","properties":{"A":{"type":"integer","format":"int64"}},"required":["A"]}}}`: reflect.TypeFor[struct {
			inner `json:"in"`
		}](),
		`{"type":["array","null"],"items":{"$ref":"#"}}`:                                                       reflect.TypeFor[list](),
		`{"type":"object","properties":{"Next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["Next"]}`: reflect.TypeFor[node](),
		`{"type":"string","enum":["blue","red"]}`:                                                              reflect.TypeFor[color](),
		`{"type":"string"}`: reflect.TypeFor[shade](),
		`{"type":["string","null"],"enum":["blue","red",null]}`: reflect.TypeFor[*color](),
		`{"type":["integer","null"]}`:                           reflect.TypeFor[*big.Int](),
		`{}`:                                                    reflect.TypeFor[opaque](),
		`{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2}`:                       reflect.TypeFor[[2]bool](),
		`{"type":["object","null"],"propertyNames":{"pattern":"^[0-9]+$"},"additionalProperties":{}}`: reflect.TypeFor[map[uint8]any](),
	} {
		s, _, err := jsonschema.Of(of, false)
		require.NoError(t, err)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		assert.Equal(t, want, string(text), of)
		read, err := jsonschema.Parse(text)
		require.NoError(t, err, of)
		assert.Equal(t, s, read, of)
	}
}

func TestOfRefuses(t *testing.T) {
	t.Parallel()
	const enum = "an enum is of values"
	for of, reason := range map[reflect.Type]string{
		reflect.TypeFor[struct{ F []func() }](): `.F[]: encoding/json does not encode a func()`,
		reflect.TypeFor[map[float64]int]():      "does not encode a map[float64]int",
		reflect.TypeFor[complex128]():           "does not encode a complex128",
		reflect.TypeFor[badEnum]():              enum,
		reflect.TypeFor[struct {
			A int `jsonschema:"enum=a"`
		}](): enum,
		reflect.TypeFor[struct {
			A int `jsonschema:"enum=1,enum=1"`
		}](): enum,
		reflect.TypeFor[struct {
			A any `jsonschema:"enum=1"`
		}](): enum,
		reflect.TypeFor[struct {
			A inner `jsonschema:"enum=1"`
		}](): enum,
	} {
		_, _, err := jsonschema.Of(of, false)
		assert.ErrorContains(t, err, reason, of)
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	_, notes, err := jsonschema.Of(reflect.TypeFor[struct {
		Anonymous int
		Twice     []inner `json:"twice"`
		Again     inner   `json:"again"`
		Opaque    opaque  `json:"opaque"`
	}](), false)
	require.NoError(t, err)
	require.Len(t, notes, 3)
	assert.Contains(t, notes[0], `.Anonymous has no JSON name: it leaves as "Anonymous"`)
	assert.Contains(t, notes[1], `jsonschema_test.inner.A has no JSON name: it leaves as "A"`)
	assert.Contains(t, notes[2], `.opaque: the type jsonschema_test.opaque writes its JSON itself`)
	_, notes, err = jsonschema.Of(reflect.TypeFor[struct {
		Twice  []inner
		Opaque opaque
	}](), true)
	require.NoError(t, err)
	require.Len(t, notes, 1, "names in camelCase are meant")
	assert.Contains(t, notes[0], `.opaque: the type jsonschema_test.opaque writes its JSON itself`)
}
