package jsonschema

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/internal/jsonfields"
)

// Of describes what encoding/json writes of a value of this type. Whatever it writes is valid by
// the schema; the reverse is not true of values that the type's own code never makes.
//
// A type with a MarshalJSON of its own can be anything, except for those that are known: times,
// UUIDs, decimals, big integers. One with a MarshalText is a string. A field is required unless
// omitempty, omitzero or an embedded pointer can leave it out. Named structs are under "$defs".
//
// Constants cannot be found by reflection. A field says which values it has by the tag
// `jsonschema:"enum=draft,enum=placed"`, a type by a method Enum() []any.
//
// Notes are about what a reader of the schema would want otherwise: fields that have no name in
// JSON, types of which nothing is known. The error is about what encoding/json does not encode.
//
// With camelCase fields without a name in JSON have one that is made of the field's: see package jsonfields.
func Of(t reflect.Type, camelCase bool) (s *Schema, notes []string, err error) {
	b := &builder{root: t, camelCase: camelCase, names: map[reflect.Type]string{}, defs: map[string]*Schema{}, noted: map[string]bool{}}
	s, err = b.top(t)
	if err != nil {
		return nil, nil, fmt.Errorf("jsonschema: %w", err)
	}
	if len(b.defs) > 0 {
		top := *s
		top.Defs = b.defs
		s = &top
	}
	return s, b.notes, nil
}

// builder makes one schema with its definitions.
type builder struct {
	root      reflect.Type
	camelCase bool
	names     map[reflect.Type]string // of definitions
	defs      map[string]*Schema
	notes     []string
	noted     map[string]bool
}

func (b *builder) notef(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !b.noted[note] {
		b.noted[note] = true
		b.notes = append(b.notes, note)
	}
}

// top is the schema that is in front: not a reference to a definition.
func (b *builder) top(t reflect.Type) (*Schema, error) {
	if s, err := b.special(t, t.String()); s != nil || err != nil {
		return s, err
	}
	return b.plain(t, t.String())
}

// of is the schema of a type within another; path is where it is, for errors.
func (b *builder) of(t reflect.Type, path string) (*Schema, error) {
	if s, err := b.special(t, path); s != nil || err != nil {
		return s, err
	}
	if t == b.root && (t.Kind() == reflect.Struct || recursive(t)) {
		return &Schema{Ref: "#"}, nil
	}
	if t.Name() == "" || t.Kind() != reflect.Struct && !recursive(t) {
		return b.plain(t, path)
	}
	if name, known := b.names[t]; known {
		return &Schema{Ref: defsPrefix + name}, nil
	}
	name := b.freeName(t)
	b.names[t], b.defs[name] = name, nil // taken, also by what is within it
	s, err := b.plain(t, path)
	if err != nil {
		return nil, err
	}
	b.defs[name] = s
	return &Schema{Ref: defsPrefix + name}, nil
}

// freeName is the type's, without what cannot stand in a reference.
func (b *builder) freeName(t reflect.Type) string {
	base := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '_'
	}, t.Name())
	name := base
	for n := 2; ; n++ {
		if _, taken := b.defs[name]; !taken {
			return name
		}
		name = base + "_" + strconv.Itoa(n)
	}
}

// recursive reports whether a map, slice, array or pointer holds itself without a struct between,
// for structs have definitions anyway.
func recursive(t reflect.Type) bool {
	seen := map[reflect.Type]bool{}
	for inner := t; ; {
		switch inner.Kind() {
		case reflect.Map, reflect.Slice, reflect.Array, reflect.Pointer:
			inner = inner.Elem()
		default:
			return false
		}
		if inner == t {
			return true
		}
		if seen[inner] { // a circle that t only leads to
			return false
		}
		seen[inner] = true
	}
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	enumerated    = reflect.TypeFor[interface{ Enum() []any }]()
	jsonNumber    = reflect.TypeFor[json.Number]()
	bigInt        = reflect.TypeFor[big.Int]()
)

// special describes a type that has methods which decide about its JSON; nil where it has none.
func (b *builder) special(t reflect.Type, path string) (*Schema, error) {
	kind := t.Kind()
	if kind == reflect.Interface {
		return &Schema{}, nil
	}
	own := func(method reflect.Type) bool { return t.Implements(method) }
	onPointer := func(method reflect.Type) bool {
		return kind != reflect.Pointer && reflect.PointerTo(t).Implements(method)
	}
	if kind == reflect.Pointer {
		return b.specialPointer(t, path)
	}
	if s := knownType(t); s != nil {
		return s, nil
	}
	if own(jsonMarshaler) || onPointer(jsonMarshaler) || onPointer(textMarshaler) && !own(textMarshaler) {
		// With a method on the pointer it depends on where the value is whether it is called.
		b.notef("%s: the type %s writes its JSON itself, so the contract takes anything there and shows no change", path, t)
		return &Schema{}, nil
	}
	values, err := enumOf(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case own(textMarshaler):
		return (&Schema{Type: Types{String}}).limitedTo(values)
	case values != nil:
		s, err := b.plain(t, path)
		if err != nil {
			return nil, err
		}
		return s.limitedTo(values)
	default:
		return nil, nil //nolint:nilnil // nothing special
	}
}

// specialPointer is special for a pointer, which can always call the methods of its element.
func (b *builder) specialPointer(t reflect.Type, path string) (*Schema, error) {
	elem := t.Elem()
	writesJSON, writesText := t.Implements(jsonMarshaler), t.Implements(textMarshaler)
	switch {
	case elem == bigInt:
		return &Schema{Type: Types{Integer, Null}}, nil
	case writesText && !writesJSON && !elem.Implements(textMarshaler):
		return &Schema{Type: Types{String, Null}}, nil
	case writesText || writesJSON:
		s, err := b.special(elem, path)
		if s == nil || err != nil {
			return s, err
		}
		return s.Nullable(), nil
	default:
		return nil, nil //nolint:nilnil // nothing special
	}
}

// plain describes a type by its kind alone.
func (b *builder) plain(t reflect.Type, path string) (*Schema, error) {
	switch t.Kind() {
	case reflect.Pointer:
		s, err := b.of(t.Elem(), path)
		if err != nil {
			return nil, err
		}
		return s.Nullable(), nil
	case reflect.Slice:
		if elem := reflect.PointerTo(t.Elem()); t.Elem().Kind() == reflect.Uint8 && !elem.Implements(jsonMarshaler) && !elem.Implements(textMarshaler) {
			return &Schema{Type: Types{String, Null}, ContentEncoding: "base64"}, nil
		}
		items, err := b.of(t.Elem(), path+"[]")
		return &Schema{Type: Types{Array, Null}, Items: items}, err
	case reflect.Array:
		items, err := b.of(t.Elem(), path+"[]")
		n := t.Len()
		return &Schema{Type: Types{Array}, Items: items, MinItems: &n, MaxItems: &n}, err
	case reflect.Map:
		return b.mapOf(t, path)
	case reflect.Struct:
		return b.structOf(t, path)
	default:
		if s := scalar(t); s != nil {
			return s, nil
		}
		return nil, fmt.Errorf("%s: encoding/json does not encode a %s", path, t)
	}
}

// scalar describes a type that holds no other; nil where encoding/json does not encode it.
func scalar(t reflect.Type) *Schema {
	switch kind := t.Kind(); {
	case t == jsonNumber:
		return &Schema{Type: Types{Number}}
	case kind == reflect.Bool:
		return &Schema{Type: Types{Boolean}}
	case kind == reflect.String:
		return &Schema{Type: Types{String}}
	case kind == reflect.Float32:
		return &Schema{Type: Types{Number}, Format: "float"}
	case kind == reflect.Float64:
		return &Schema{Type: Types{Number}, Format: "double"}
	case kind >= reflect.Int && kind <= reflect.Int64:
		return &Schema{Type: Types{Integer}, Format: "int" + strconv.Itoa(t.Bits())}
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		return &Schema{Type: Types{Integer}, Format: "uint" + strconv.Itoa(t.Bits()), Minimum: new(int)}
	default:
		return nil
	}
}

func (b *builder) mapOf(t reflect.Type, path string) (*Schema, error) {
	s := &Schema{Type: Types{Object, Null}}
	switch kind := t.Key().Kind(); {
	case kind == reflect.String || t.Key().Implements(textMarshaler):
	case kind >= reflect.Int && kind <= reflect.Int64:
		s.PropertyNames = &Schema{Pattern: signedDigits}
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		s.PropertyNames = &Schema{Pattern: digits}
	default:
		return nil, fmt.Errorf("%s: encoding/json does not encode a %s", path, t)
	}
	var err error
	s.AdditionalProperties, err = b.of(t.Elem(), path+".*")
	return s, err
}

const (
	signedDigits = "^-?[0-9]+$"
	digits       = "^[0-9]+$"
)

func (b *builder) structOf(t reflect.Type, path string) (*Schema, error) {
	s := &Schema{Type: Types{Object}}
	for _, f := range jsonfields.Of(t) {
		name := f.Name
		if b.camelCase {
			name = f.CamelCase()
		}
		at := path + "." + name
		member, err := b.member(&f, at)
		if err != nil {
			return nil, err
		}
		if !f.Named && !b.camelCase {
			where := f.Owner.String() + "." + f.GoName
			if f.Owner.Name() == "" {
				where = at
			}
			b.notef("%s has no JSON name: it leaves as %q, and renaming the field breaks its readers; give it a tag `json:\"...\"`", where, name)
		}
		if s.Properties == nil {
			s.Properties = map[string]*Schema{}
		}
		s.Properties[name] = member
		if !f.Optional() {
			s.Required = append(s.Required, name)
		}
	}
	slices.Sort(s.Required)
	return s, nil
}

func (b *builder) member(f *jsonfields.Field, path string) (*Schema, error) {
	s, err := b.of(f.Type, path)
	if err != nil {
		return nil, err
	}
	if f.Quoted && len(s.Type) > 0 && !f.Type.Implements(textMarshaler) { // not of types that write themselves
		s = quoted(s)
	}
	if f.LeavesNilOut() {
		within, err := b.nullWithin(f.Type, path)
		if err != nil {
			return nil, err
		}
		if !within {
			s = s.NotNull()
		}
	}
	values, err := tagged(f.Tag, s)
	if err == nil && values != nil {
		s, err = s.within(values)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// nullWithin reports whether a pointer that is not nil can point to what is null.
func (b *builder) nullWithin(t reflect.Type, path string) (bool, error) {
	if t.Kind() != reflect.Pointer {
		return false, nil
	}
	s, err := b.of(t.Elem(), path)
	return err != nil || s.TakesNull(), err
}

// quoted is a scalar with the option string: JSON in a string.
func quoted(s *Schema) *Schema {
	in := &Schema{Type: Types{String}, Format: s.Format}
	switch s.Type[0] {
	case String:
		in.Pattern = `^"`
	case Number:
		in.Pattern = `^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$`
	case Integer:
		in.Pattern = signedDigits
		if s.Minimum != nil {
			in.Pattern = digits
		}
	case Boolean:
		in.Enum = []json.RawMessage{json.RawMessage(`"false"`), json.RawMessage(`"true"`)}
	}
	if slices.Contains(s.Type, Null) {
		in = in.Nullable()
	}
	return in
}

var errEnum = errors.New("an enum is of values that encoding/json writes as strings, numbers or booleans, and each at most once")

// enumOf asks a type for its values; nil where it has none to tell.
func enumOf(t reflect.Type) ([]json.RawMessage, error) {
	if !reflect.PointerTo(t).Implements(enumerated) {
		return nil, nil
	}
	var values []json.RawMessage
	for _, value := range reflect.New(t).Interface().(interface{ Enum() []any }).Enum() { //nolint:forcetypeassert // it was just asked
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		values = append(values, text)
	}
	return values, nil
}

// tagged are the values that a field's tag names.
func tagged(tag reflect.StructTag, s *Schema) ([]json.RawMessage, error) {
	for s.Items != nil {
		s = s.Items
	}
	var values []json.RawMessage
	for option := range strings.SplitSeq(tag.Get("jsonschema"), ",") {
		value, isEnum := strings.CutPrefix(option, "enum=")
		if !isEnum {
			continue
		}
		text := []byte(value)
		if slices.Contains(s.Type, String) {
			var err error
			if text, err = json.Marshal(value); err != nil {
				return nil, err
			}
		}
		if !json.Valid(text) {
			return nil, errEnum
		}
		values = append(values, text)
	}
	return values, nil
}

// within limits the scalars in a schema of lists to these values.
func (s *Schema) within(values []json.RawMessage) (*Schema, error) {
	if s.Items == nil {
		return s.limitedTo(values)
	}
	items, err := s.Items.within(values)
	list := *s
	list.Items = items
	return &list, err
}

// limitedTo is the schema of a scalar with an enum, which is sorted.
func (s *Schema) limitedTo(values []json.RawMessage) (*Schema, error) {
	if values == nil {
		return s, nil
	}
	if len(s.Type) == 0 || s.Ref != "" || slices.Contains(s.Type, Array) || slices.Contains(s.Type, Object) {
		return nil, errEnum
	}
	limited := *s
	limited.Enum = slices.SortedFunc(slices.Values(values), func(a, b json.RawMessage) int { return strings.Compare(string(a), string(b)) })
	for i, value := range limited.Enum {
		if i > 0 && string(value) == string(limited.Enum[i-1]) || strings.ContainsAny(string(value[0]), "{[n") {
			return nil, errEnum
		}
	}
	if slices.Contains(s.Type, Null) {
		limited.Enum = append(limited.Enum, json.RawMessage(Null))
	}
	return &limited, nil
}
