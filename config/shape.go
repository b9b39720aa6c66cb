package config

import (
	"maps"
	"math"
	"slices"
)

// shape is what the reader takes at one place of a document. Whoever reads a key notes it, so that
// the schema for editors and the reader have one source: see Schema. Nothing is noted in a nil one.
type shape struct {
	value    map[string]any    // the JSON Schema of a single value or a list
	keys     map[string]*shape // of a mapping
	entries  map[string]*shape // of a mapping whose keys are names of the user's, by those that were read
	any      map[string]any    // of a mapping whose keys are of the user's choice: what each of them holds
	names    string            // the pattern of those keys; "" = all
	required []string
	closed   bool // other keys are refused
}

// below is the shape of a key of a mapping.
func (s *shape) below(name string) *shape {
	if s == nil {
		return nil
	}
	if s.keys == nil {
		s.keys = map[string]*shape{}
	}
	if s.keys[name] == nil {
		s.keys[name] = new(shape)
	}
	return s.keys[name]
}

// entry is the shape of one of the user's names.
func (s *shape) entry(name string) *shape {
	if s == nil {
		return nil
	}
	if s.entries == nil {
		s.entries = map[string]*shape{}
	}
	s.names, s.entries[name] = namePattern.String(), new(shape)
	return s.entries[name]
}

// takes notes what a key holds. The value is made only where it is noted.
func (o *object) takes(name string, value func() map[string]any) {
	if s := o.shape.below(name); s != nil {
		s.value = value()
	}
}

// takesAny notes that the keys of a mapping are of the user's choice, and what each of them holds.
func (o *object) takesAny(names string, value func() map[string]any) {
	if o.shape != nil {
		o.shape.names, o.shape.any = names, value()
	}
}

// require reports a key that is missing: what to use follows its name.
func (o *object) require(name, use string) {
	if o.shape != nil && !slices.Contains(o.shape.required, name) {
		o.shape.required = append(o.shape.required, name)
	}
	if !o.broken && !o.has(name) {
		o.problemf(o.at, o.path, "%s is missing%s", name, use)
	}
}

// variable is the definition of a text with a variable in it, which has the type of its value.
const variable = "variable"

// definitions are what the shapes below refer to.
func definitions() map[string]any {
	return map[string]any{
		variable: map[string]any{
			"type": "string", "pattern": `\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}`, "description": "an environment variable: ${NAME}, or ${NAME:-default}",
		},
		"duration": map[string]any{
			"type": "string", "pattern": durationPattern, "allOf": []any{map[string]any{"pattern": notZero}}, "description": "a positive duration, " + durationExamples,
		},
	}
}

func orVariable(value map[string]any) map[string]any {
	return map[string]any{"anyOf": []any{value, refTo(variable)}}
}

func refTo(definition string) map[string]any {
	return map[string]any{"$ref": "#/definitions/" + definition}
}

func textShape() map[string]any { return map[string]any{"type": "string", "minLength": 1} }

func choiceShape(words []string) map[string]any { return orVariable(map[string]any{"enum": words}) }

func booleanShape() map[string]any { return orVariable(map[string]any{"type": "boolean"}) }

func durationShape() map[string]any { return orVariable(refTo("duration")) }

func integerShape(least, most int) map[string]any {
	return orVariable(map[string]any{"type": "integer", "minimum": least, "maximum": most})
}

func numberShape(least, most float64) map[string]any {
	value := map[string]any{"type": "number", "minimum": least}
	if most < math.MaxFloat64 {
		value["maximum"] = most
	}
	return orVariable(value)
}

func listShape(item map[string]any) map[string]any {
	return map[string]any{"type": []string{"array", "null"}, "items": item}
}

// schema is the JSON Schema of a place. comment gives the words about the place that a path leads to.
func (s *shape) schema(path []string, comment func(path []string) string) map[string]any {
	schema := map[string]any{}
	switch {
	case s.value != nil:
		maps.Copy(schema, s.value)
	case s.keys == nil && s.any != nil:
		schema["type"], schema["additionalProperties"] = []string{"object", "null"}, s.any
		if s.names != "" {
			schema["propertyNames"] = map[string]any{"pattern": s.names}
		}
	default:
		properties := map[string]any{}
		for name, key := range s.keys {
			properties[name] = key.schema(append(slices.Clone(path), name), comment)
		}
		schema["type"], schema["properties"] = []string{"object", "null"}, properties
		if s.closed {
			schema["additionalProperties"] = false
		}
		if len(s.required) > 0 {
			schema["type"], schema["required"] = "object", s.required
		}
	}
	if text := comment(path); text != "" {
		schema["description"] = text
	}
	return schema
}
