package jsonschema

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Infer describes JSON values of which there are samples, decoded with numbers as json.Number. The
// samples are to differ in all that can differ: what is the same in several is taken for a
// constant, and a member that one of them lacks for optional.
func Infer(samples ...any) *Schema {
	s := new(Schema)
	var (
		objects []map[string]any
		scalars []any
		null    bool
	)
	for _, sample := range samples {
		kind := kindOf(sample)
		switch v := sample.(type) {
		case nil:
			null = true
			continue
		case map[string]any:
			objects = append(objects, v)
		default:
			scalars = append(scalars, v)
		}
		if !slices.Contains(s.Type, kind) {
			s.Type = append(s.Type, kind)
		}
	}
	slices.Sort(s.Type)
	s.inferMembers(objects)
	s.inferScalar(scalars)
	if null {
		s.Type = append(s.Type, Null)
	}
	return s
}

func kindOf(value any) string {
	switch v := value.(type) {
	case nil:
		return Null
	case bool:
		return Boolean
	case string:
		return String
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return Integer
		}
		return Number
	case map[string]any:
		return Object
	default:
		return Array
	}
}

func (s *Schema) inferMembers(objects []map[string]any) {
	values := map[string][]any{}
	for _, object := range objects {
		for name, value := range object {
			values[name] = append(values[name], value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if s.Properties == nil {
			s.Properties = map[string]*Schema{}
		}
		s.Properties[name] = Infer(values[name]...)
		if len(values[name]) == len(objects) {
			s.Required = append(s.Required, name)
		}
	}
}

func (s *Schema) inferScalar(values []any) {
	if len(values) == 0 || kindOf(values[0]) == Array {
		return
	}
	same, times, ids := len(values) > 1, true, true
	for _, value := range values {
		same = same && value == values[0]
		text, _ := value.(string)
		_, err := time.Parse(time.RFC3339Nano, text)
		times = times && err == nil
		ids = ids && len(text) == len(uuid.Nil.String()) && uuid.Validate(text) == nil // of its forms, that with hyphens
	}
	switch {
	case same:
		s.Const, _ = json.Marshal(values[0]) //nolint:errchkjson // a scalar that was JSON
	case times:
		s.Format = "date-time"
	case ids:
		s.Format = "uuid"
	}
}
