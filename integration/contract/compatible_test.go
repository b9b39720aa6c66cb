package contract_test

import (
	"encoding/json"
	"math/big"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	own "github.com/gorm-fanout/fanout/internal/jsonschema"
)

type wider string

func (wider) Enum() []any { return []any{wider("placed"), wider("paid"), wider("refunded")} }

// changing are types that fields change between: in ways that are compatible, as often as not.
var changing = []reflect.Type{
	reflect.TypeFor[int8](), reflect.TypeFor[uint8](), reflect.TypeFor[int32](), reflect.TypeFor[*int32](), reflect.TypeFor[uint64](), reflect.TypeFor[float32](),
	reflect.TypeFor[float64](), reflect.TypeFor[json.Number](), reflect.TypeFor[*big.Int](), reflect.TypeFor[string](), reflect.TypeFor[*string](),
	reflect.TypeFor[status](), reflect.TypeFor[*wider](), reflect.TypeFor[time.Time](), reflect.TypeFor[*time.Time](), reflect.TypeFor[uuid.UUID](), reflect.TypeFor[any](),
	reflect.TypeFor[[]byte](), reflect.TypeFor[[]int8](), reflect.TypeFor[[2]int8](), reflect.TypeFor[[]*int32](), reflect.TypeFor[map[string]int8](),
	reflect.TypeFor[map[int8]int32](), reflect.TypeFor[map[uint8]any](), reflect.TypeFor[named](), reflect.TypeFor[*named](), reflect.TypeFor[box[int]](),
	reflect.TypeFor[box[*int8]](), reflect.TypeFor[tree](), reflect.TypeFor[*tree](), reflect.TypeFor[list](), reflect.TypeFor[[]list](),
}

// randomStruct has fields of the names a to c.
func randomStruct(t *rapid.T) reflect.Type {
	var fields []reflect.StructField
	for i, name := range []string{"a", "b", "c"} {
		tag := rapid.SampledFrom([]string{`json:"-"`, name, name, name + ",omitempty", name + ",omitzero", name + ",string"}).Draw(t, "tag")
		if tag[0] != 'j' {
			tag = `json:"` + tag + `"`
		}
		fields = append(fields, reflect.StructField{
			Name: string(rune('A' + i)), Type: rapid.SampledFrom(changing).Draw(t, "type"), Tag: reflect.StructTag(tag),
		})
	}
	return reflect.StructOf(fields)
}

// What is called compatible is: whatever the new type writes, a reader can go on to read with the
// old schema. What is not called a change at all is none.
func TestCompatibleIsReadable(t *testing.T) {
	t.Parallel()
	compatible, breaking := 0, 0
	pair := func(t *rapid.T) {
		before, after := randomStruct(t), randomStruct(t)
		if rapid.Bool().Draw(t, "one field alone") {
			fields := []reflect.StructField{after.Field(0)}
			for i := 1; i < before.NumField(); i++ {
				fields = append(fields, before.Field(i))
			}
			after = reflect.StructOf(fields)
		}
		old, _, err := own.Of(before, false)
		require.NoError(t, err)
		current, _, err := own.Of(after, false)
		require.NoError(t, err)
		breaks, changes := false, 0
		require.NoError(t, own.Compare(old, current, "", func(is bool, _, _ string) { breaks, changes = breaks || is, changes+1 }))
		if breaks {
			breaking++
			return
		}
		compatible++
		if changes == 0 { // then there is nothing new, either
			old = closed(old)
		}
		compiled := compile(t, old)
		for range 5 {
			value := reflect.New(after)
			(&generator{T: t}).fill(value.Elem())
			valid(t, compiled, value.Elem().Interface())
		}
	}
	rapid.Check(t, pair)
	assert.Positive(t, compatible)
	assert.Positive(t, breaking)
}
