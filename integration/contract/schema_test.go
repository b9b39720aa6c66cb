// Package contract checks what package contract writes with other programs' validators: the JSON
// Schemas with one of JSON Schema 2020-12, the AsyncAPI document with AsyncAPI's own schema.
package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/shopspring/decimal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"pgregory.net/rapid"

	own "github.com/gorm-fanout/fanout/internal/jsonschema"
)

type (
	status string
	level  int
	text   struct{ inner string }
	onPtr  struct{ inner string }
	asJSON struct{ inner int }
	key    struct{ n int }

	tree   struct{ Left, Right *tree }
	list   []list
	dict   map[string]dict
	loop   []*loop
	never  []int
	deep   struct{ B *deepB }
	deepB  struct{ A []deep }
	hidden struct{ Seen, seen int } //nolint:unused // that nothing reads it is its point
	Shadow struct{ X, Y int }
	Other  struct{ X, Z int }
	Tagged struct {
		X int `json:"X"`
	}
	generic    [3]box[box[int]]
	named      struct{ V int }
	box[T any] struct{ V T }
)

func (status) Enum() []any                    { return []any{status("placed"), status("paid")} }
func (t text) MarshalText() ([]byte, error)   { return []byte(t.inner), nil }
func (t *onPtr) MarshalText() ([]byte, error) { return []byte(t.inner), nil }
func (j asJSON) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `{"n":%d}`, j.inner), nil }
func (k key) MarshalText() ([]byte, error)    { return fmt.Appendf(nil, "k%d", k.n), nil }
func (never) IsZero() bool                    { return false }
func (l level) MarshalText() ([]byte, error)  { return fmt.Appendf(nil, "level %d", int(l)), nil }

// everything has what encoding/json has rules for.
type everything struct {
	Bool    bool
	Int8    int8   `json:"int8"`
	Int64   int64  `json:"int64,string"`
	Uint    uint   `json:"uint,omitempty,string"`
	Uint16  uint16 `json:",omitempty"`
	Float32 float32
	Float64 *float64 `json:"f64,string"`
	Quoted  string   `json:",string"`
	QBool   *bool    `json:",string"`
	QDeep   **int    `json:",string"` //nolint:staticcheck // what encoding/json makes of it is tested
	Number  json.Number
	QNumber json.Number `json:",string"`

	Bytes     []byte
	BytesNil  []byte `json:",omitempty"`
	ByteArray [4]byte
	Empty     [0]int `json:",omitempty"`
	Slice     []string
	SliceOmit []string `json:",omitempty"`
	SliceZero []string `json:",omitzero"`
	Never     never    `json:",omitzero"`
	Array     [2]*int
	Map       map[string]int
	MapInt    map[int8][]bool `json:",omitempty"`
	MapUint   map[uint16]string
	MapText   map[key]any
	Levels    map[level]level
	Nested    map[string]map[string][]*named

	Any     any
	Raw     json.RawMessage
	Ptr     *named
	PtrOmit *named         `json:",omitempty"`
	PtrPtr  **named        `json:",omitempty"`
	PtrNil  *[]int         `json:",omitempty"`
	PtrNull *uuid.NullUUID `json:",omitempty"`
	Struct  struct {
		A int `json:"a,omitempty"`
		B struct{ C string }
	} `json:"struct,omitempty"` //nolint:modernize // that it has no effect is tested

	Time     time.Time
	TimeZero time.Time `json:",omitzero"`
	TimePtr  *time.Time
	Duration time.Duration
	UUID     uuid.UUID
	NullUUID uuid.NullUUID
	Decimal  decimal.Decimal
	NullDec  decimal.NullDecimal
	Big      *big.Int
	BigValue big.Int
	BigFloat *big.Float
	Addr     netip.Addr
	Deleted  gorm.DeletedAt

	Status    status
	StatusPtr *status
	Tag       []int `jsonschema:"enum=1,enum=2"`
	Text      text
	TextPtr   *text
	OnPtr     onPtr
	OnPtrPtr  *onPtr
	JSON      asJSON
	JSONPtr   *asJSON `json:",omitempty"`
	Level     level   `json:",string"`

	Tree    tree
	List    box[list] // in a box, since a linter does not return from a field that holds itself
	Dict    box[dict]
	Loop    box[loop]
	Deep    *deep
	Generic generic

	hidden
	*Shadow
	Other
	Tagged
	Ignored chan int `json:"-"`
	Dash    int      `json:"-,"` //nolint:staticcheck // what encoding/json makes of it is tested
	Odd     int      `json:"a b/c"`
	Bad     int      `json:"q\"uote"` //nolint:staticcheck // what encoding/json makes of it is tested
	named   int      //nolint:unused // that nothing reads it is its point
}

func compile(t rapid.TB, schema *own.Schema) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(schema)
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("urn:test", document))
	compiled, err := compiler.Compile("urn:test")
	require.NoError(t, err, string(text))
	return compiled
}

// closed refuses members that the schema does not name, so that none is forgotten.
func closed(s *own.Schema) *own.Schema {
	if s == nil {
		return nil
	}
	c := *s
	if len(s.Type) > 0 && s.AdditionalProperties == nil {
		none := &own.Schema{Enum: []json.RawMessage{json.RawMessage(`"nothing is valid here"`)}}
		c.AdditionalProperties = none
	} else {
		c.AdditionalProperties = closed(s.AdditionalProperties)
	}
	each := func(in map[string]*own.Schema) map[string]*own.Schema {
		out := map[string]*own.Schema{}
		for name, part := range in {
			out[name] = closed(part)
		}
		return out
	}
	c.Properties, c.Defs, c.Items = each(s.Properties), each(s.Defs), closed(s.Items)
	return &c
}

// generator makes random values of any type.
type generator struct {
	*rapid.T

	depth int
}

func (g *generator) fill(v reflect.Value) {
	g.depth++
	defer func() { g.depth-- }()
	if g.special(v) {
		return
	}
	const shallow = 9
	n := rapid.IntRange(-1, 2).Draw(g.T, "length")
	if g.depth > shallow {
		n = min(n, 0)
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(g.T, "bool"))
	case reflect.String:
		v.SetString(rapid.String().Draw(g.T, "string"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64Range(math.MinInt64>>(64-v.Type().Bits()), math.MaxInt64>>(64-v.Type().Bits())).Draw(g.T, "int"))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64Range(0, math.MaxUint64>>(64-v.Type().Bits())).Draw(g.T, "uint"))
	case reflect.Float32:
		v.SetFloat(float64(rapid.Float32Range(-1e30, 1e30).Draw(g.T, "float")))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(-1e300, 1e300).Draw(g.T, "float"))
	case reflect.Pointer:
		if n >= 0 && g.depth <= shallow {
			v.Set(reflect.New(v.Type().Elem()))
			g.fill(v.Elem())
		}
	case reflect.Slice:
		if n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			g.fill(v.Index(i))
		}
	case reflect.Map:
		if n < 0 {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range n {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			g.fill(key)
			g.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				g.fill(field)
			}
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]any{nil, 1, "a", []int(nil), map[string]any{"x": 1.5}}).Draw(g.T, "any")))
	default:
	}
}

// special sets values whose fields cannot be set one by one.
func (g *generator) special(v reflect.Value) bool {
	if !v.CanSet() {
		return true
	}
	n := rapid.Int64Range(-1000, 1000).Draw(g.T, "special")
	switch into := v.Addr().Interface().(type) {
	case *time.Time:
		*into = rapid.SampledFrom([]time.Time{{}, time.Unix(n*1_000_000, n*n).UTC()}).Draw(g.T, "time")
	case *json.Number:
		*into = json.Number(fmt.Sprint(n))
	case *json.RawMessage:
		*into = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"a":[1]}`), json.RawMessage("7")}).Draw(g.T, "raw")
	case *decimal.Decimal:
		*into = decimal.New(n, int32(n%10))
	case *big.Int:
		into.Exp(big.NewInt(n), big.NewInt(9), nil)
	case *big.Float:
		into.SetInt64(n)
	case *netip.Addr:
		*into = netip.AddrFrom4([4]byte{1, 2, 3, byte(n)})
	case *wider:
		*into = rapid.SampledFrom([]wider{"placed", "paid", "refunded"}).Draw(g.T, "wider")
	case *status:
		*into = rapid.SampledFrom([]status{"placed", "paid"}).Draw(g.T, "status")
	case *[]int: // those with an enum
		*into = rapid.SampledFrom([][]int{nil, {}, {1, 2}}).Draw(g.T, "ints")
	case *text:
		into.inner = "text"
	case *onPtr:
		into.inner = "text"
	case *any:
		if value := rapid.SampledFrom([]any{nil, 1, "a", []int(nil), map[string]any{"x": 1.5}}).Draw(g.T, "any"); value != nil {
			*into = value
		}
	default:
		return false
	}
	return true
}

// valid checks that what encoding/json writes of a value is valid by the schema of its type.
func valid(t *rapid.T, compiled *jsonschema.Schema, value any) {
	written, err := json.Marshal(value)
	require.NoError(t, err)
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(written))
	require.NoError(t, err)
	require.NoError(t, compiled.Validate(instance), string(written))
}

func TestEncodedIsValid(t *testing.T) {
	t.Parallel()
	for _, of := range []reflect.Type{
		reflect.TypeFor[everything](), reflect.TypeFor[tree](), reflect.TypeFor[list](), reflect.TypeFor[dict](), reflect.TypeFor[loop](),
		reflect.TypeFor[deep](), reflect.TypeFor[generic](), reflect.TypeFor[status](), reflect.TypeFor[map[key][]level](), reflect.TypeFor[struct{}](),
	} {
		t.Run(of.String(), func(t *testing.T) {
			t.Parallel()
			s, _, err := own.Of(of, false)
			require.NoError(t, err)
			compiled := compile(t, closed(s))
			rapid.Check(t, func(t *rapid.T) {
				value := reflect.New(of)
				(&generator{T: t}).fill(value.Elem())
				valid(t, compiled, value.Elem().Interface()) // not addressable
				valid(t, compiled, value.Interface())
			})
		})
	}
}

// Structs that no programmer thought of: with fields in all orders, names that clash, options that
// have no effect.
func TestEncodedIsValidOfRandomStructs(t *testing.T) {
	t.Parallel()
	fields := reflect.TypeFor[everything]()
	tags := []string{``, `json:"a"`, `json:"b"`, `json:"a,omitempty"`, `json:"b,omitzero"`, `json:",string"`, `json:",omitempty,string"`, `json:"-"`, `json:"A"`}
	rapid.Check(t, func(t *rapid.T) {
		var made []reflect.StructField
		for i := range rapid.IntRange(1, 6).Draw(t, "fields") {
			f := fields.Field(rapid.IntRange(0, fields.NumField()-1).Draw(t, "type"))
			if f.Type.Kind() == reflect.Chan || f.Name == "Tag" {
				continue
			}
			f.Name = string(rune('A' + i))
			f.PkgPath, f.Anonymous, f.Tag = "", false, reflect.StructTag(rapid.SampledFrom(tags).Draw(t, "tag"))
			made = append(made, f)
		}
		of := reflect.StructOf(made)
		s, _, err := own.Of(of, false)
		require.NoError(t, err)
		compiled := compile(t, closed(s))
		value := reflect.New(of)
		(&generator{T: t}).fill(value.Elem())
		valid(t, compiled, value.Elem().Interface())
	})
}

// What a reader may do without is found absent, and what is called null is found null, in some
// value: the schema promises no less than there is.
func TestSchemaIsTight(t *testing.T) {
	t.Parallel()
	s, _, err := own.Of(reflect.TypeFor[everything](), false)
	require.NoError(t, err)
	absent, null := map[string]bool{}, map[string]bool{}
	values := rapid.Custom(func(t *rapid.T) (value everything) {
		(&generator{T: t}).fill(reflect.ValueOf(&value).Elem())
		return value
	})
	for seed := range 300 {
		written, err := json.Marshal(values.Example(seed))
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(written, &members))
		for name := range s.Properties {
			member, there := members[name]
			absent[name] = absent[name] || !there
			null[name] = null[name] || there && member == nil
		}
	}
	required := map[string]bool{}
	for _, name := range s.Required {
		required[name] = true
	}
	for name, property := range s.Properties {
		if name != "Never" { // an IsZero could say otherwise
			assert.Equal(t, required[name], !absent[name], "%s: required", name)
		}
		if len(property.Type) > 0 || len(property.AnyOf) > 0 { // a definition can take null itself
			assert.Equal(t, property.TakesNull(), null[name], "%s: null", name)
		}
	}
}
