// Package jsonschema describes what encoding/json writes of a Go type, as JSON Schema 2020-12, and
// compares two such descriptions for who reads what they describe. It knows the part of JSON Schema
// that it writes, and refuses the rest: what it cannot read it could not compare.
//
// Schemas are not modified once they are made, and safe for concurrent use then.
package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/internal/strictjson"
)

// Dialect is the "$schema" of a schema that stands alone.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// Schema is one schema, or a part of one. The zero value takes any JSON.
type Schema struct {
	Dialect string `json:"$schema,omitempty"`
	ID      string `json:"$id,omitempty"`
	Ref     string `json:"$ref,omitempty"` // "#" or "#/$defs/<name>"

	Type    Types             `json:"type,omitempty"` // nil: any
	Format  string            `json:"format,omitempty"`
	Pattern string            `json:"pattern,omitempty"`
	Enum    []json.RawMessage `json:"enum,omitempty"` // scalars
	Const   json.RawMessage   `json:"const,omitempty"`

	ContentEncoding string `json:"contentEncoding,omitempty"`
	Minimum         *int   `json:"minimum,omitempty"`

	Properties           map[string]*Schema `json:"properties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	PropertyNames        *Schema            `json:"propertyNames,omitempty"`
	AdditionalProperties *Schema            `json:"additionalProperties,omitempty"`

	Items    *Schema `json:"items,omitempty"`
	MinItems *int    `json:"minItems,omitempty"`
	MaxItems *int    `json:"maxItems,omitempty"`

	AnyOf []*Schema `json:"anyOf,omitempty"` // a reference, or null

	Defs map[string]*Schema `json:"$defs,omitempty"`
}

// The types of JSON Schema.
const (
	Null    = "null"
	Boolean = "boolean"
	Integer = "integer"
	Number  = "number"
	String  = "string"
	Array   = "array"
	Object  = "object"
)

var allTypes = []string{Null, Boolean, Integer, Number, String, Array, Object}

// Types are the types that a value can have; one of them is written as a string.
type Types []string

// MarshalJSON implements json.Marshaler.
func (t Types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Types) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*t = Types{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(t))
}

// Parse reads a schema, without a bound of its own on the size of the text. See [Schema.Check].
func Parse(text []byte) (*Schema, error) {
	s := new(Schema)
	if err := strictjson.UnmarshalKnown(text, s); err != nil {
		return nil, fmt.Errorf("jsonschema: %w", err)
	}
	return s, s.Check()
}

// Nullable is the schema that takes null as well.
func (s *Schema) Nullable() *Schema {
	switch {
	case s.TakesNull():
		return s
	case s.Ref != "":
		return &Schema{AnyOf: []*Schema{s, {Type: Types{Null}}}}
	}
	nullable := *s
	nullable.Type = append(slices.Clone(s.Type), Null)
	if s.Enum != nil {
		nullable.Enum = append(slices.Clone(s.Enum), json.RawMessage(Null))
	}
	return &nullable
}

// NotNull is the schema without null.
func (s *Schema) NotNull() *Schema {
	if len(s.AnyOf) > 0 {
		return s.AnyOf[0]
	}
	isNull := func(v json.RawMessage) bool { return string(v) == Null }
	if !slices.Contains(s.Type, Null) || len(s.Type) == 1 {
		return s
	}
	rest := *s
	rest.Type = slices.DeleteFunc(slices.Clone(s.Type), func(t string) bool { return t == Null })
	rest.Enum = slices.DeleteFunc(slices.Clone(s.Enum), isNull)
	return &rest
}

// TakesNull reports whether null is valid. It does not follow a reference.
func (s *Schema) TakesNull() bool {
	return len(s.AnyOf) > 0 || s.Ref == "" && len(s.Type) == 0 || slices.Contains(s.Type, Null)
}

// Bounds on a schema that comes from a file.
const (
	maxDepth = 100
	maxNodes = 50_000
	maxName  = 1000 // bytes
)

const defsPrefix = "#/$defs/"

// Check says what makes a schema one that this package did not write: references into nothing, or
// in a circle, other uses of anyOf than for null, types that there are not, more than 50,000 parts,
// or a hundred of them in each other, names of more than 1,000 bytes.
func (s *Schema) Check() error {
	nodes := 0
	if err := s.check(s, 0, &nodes); err != nil {
		return fmt.Errorf("jsonschema: %w", err)
	}
	return nil
}

func (s *Schema) check(root *Schema, depth int, nodes *int) error {
	if *nodes++; *nodes > maxNodes || depth > maxDepth {
		return fmt.Errorf("has more than %d parts, or %d in each other", maxNodes, maxDepth)
	}
	if err := s.checkSelf(root); err != nil {
		return err
	}
	for name, part := range s.parts() {
		switch {
		case part == nil:
			return fmt.Errorf("%.60s is null", name)
		case len(name) > maxName:
			return fmt.Errorf("the name %.60q... has more than %d bytes", name, maxName)
		}
		if err := part.check(root, depth+1, nodes); err != nil {
			return fmt.Errorf("%.60s: %w", name, err)
		}
	}
	return nil
}

func (s *Schema) checkSelf(root *Schema) error {
	for _, t := range s.Type {
		if !slices.Contains(allTypes, t) {
			return fmt.Errorf("%.40q is no type", t)
		}
	}
	for _, value := range append(slices.Clone(s.Enum), s.Const) {
		if len(value) > 0 && (value[0] == '{' || value[0] == '[') {
			return errors.New("an enum or const has a value that is no scalar")
		}
	}
	if len(s.AnyOf) > 0 && !isNullableRef(s.AnyOf) {
		return errors.New("anyOf is not a reference or null")
	}
	if len(s.Defs) > 0 && s != root {
		return errors.New("$defs stands within a schema, not in front")
	}
	if s.Ref == "" {
		return nil
	}
	if _, err := s.resolve(root); err != nil {
		return err
	}
	return nil
}

func isNullableRef(anyOf []*Schema) bool {
	return len(anyOf) == 2 && anyOf[0] != nil && anyOf[1] != nil && anyOf[0].Ref != "" && slices.Equal(anyOf[1].Type, Types{Null})
}

// resolve follows references.
func (s *Schema) resolve(root *Schema) (*Schema, error) {
	for range maxDepth {
		name, isDef := strings.CutPrefix(s.Ref, defsPrefix)
		switch {
		case s.Ref == "":
			return s, nil
		case s.Ref == "#" && root.Ref == "":
			return root, nil
		case !isDef || root.Defs[name] == nil:
			return nil, fmt.Errorf("there is no %.60q", s.Ref)
		}
		s = root.Defs[name]
	}
	return nil, fmt.Errorf("%.60q is a reference to itself", s.Ref)
}

// parts are the schemas in a schema, by where they stand, in a fixed order.
func (s *Schema) parts() func(yield func(string, *Schema) bool) {
	return func(yield func(string, *Schema) bool) {
		for name, part := range sorted(s.Properties) {
			if !yield(name, part) {
				return
			}
		}
		for i, part := range [...]*Schema{s.PropertyNames, s.AdditionalProperties, s.Items} {
			if part != nil && !yield([...]string{"propertyNames", "additionalProperties", "items"}[i], part) {
				return
			}
		}
		for _, part := range s.AnyOf {
			if !yield("anyOf", part) {
				return
			}
		}
		for name, part := range sorted(s.Defs) {
			if !yield("$defs."+name, part) {
				return
			}
		}
	}
}

func sorted(schemas map[string]*Schema) func(yield func(string, *Schema) bool) {
	return func(yield func(string, *Schema) bool) {
		for _, name := range slices.Sorted(maps.Keys(schemas)) {
			if !yield(name, schemas[name]) {
				return
			}
		}
	}
}

// With is the schema of an object with one member more, or with another one of that name.
func (s *Schema) With(name string, member *Schema, required bool) *Schema {
	object := *s
	object.Properties = maps.Clone(s.Properties)
	if object.Properties == nil {
		object.Properties = map[string]*Schema{}
	}
	object.Properties[name] = member
	if required && !slices.Contains(s.Required, name) {
		object.Required = append(slices.Clone(s.Required), name)
		slices.Sort(object.Required)
	}
	return &object
}

// Rewrite is a copy of the schema with other references.
func (s *Schema) Rewrite(rename func(reference string) string) *Schema {
	if s == nil {
		return nil
	}
	all := func(schemas map[string]*Schema) map[string]*Schema {
		renamed := maps.Clone(schemas)
		for name, part := range renamed {
			renamed[name] = part.Rewrite(rename)
		}
		return renamed
	}
	renamed := *s
	if s.Ref != "" {
		renamed.Ref = rename(s.Ref)
	}
	renamed.Properties, renamed.Defs = all(s.Properties), all(s.Defs)
	renamed.PropertyNames, renamed.AdditionalProperties, renamed.Items = s.PropertyNames.Rewrite(rename), s.AdditionalProperties.Rewrite(rename), s.Items.Rewrite(rename)
	renamed.AnyOf = slices.Clone(s.AnyOf)
	for i, part := range renamed.AnyOf {
		renamed.AnyOf[i] = part.Rewrite(rename)
	}
	return &renamed
}
