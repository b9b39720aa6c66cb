package strictjson

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// shape is what a scanner knows of a type: its fields by their names in JSON, or the type of its
// elements. It is filled in when it is first asked, since types may contain themselves.
type shape struct {
	of     reflect.Type
	once   sync.Once
	fields map[string]reflect.Type
	folded map[string]string // the exact name by the folded one
	elem   reflect.Type
}

var shapes sync.Map //nolint:gochecknoglobals // a cache of what never changes; by reflect.Type

func typeOf(into any) *shape { return shapeOf(reflect.TypeOf(into)) }

func shapeOf(t reflect.Type) *shape {
	for t != nil && t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if t == nil || decodesItself(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
	default:
		return nil
	}
	known, _ := shapes.LoadOrStore(t, &shape{of: t})
	s := known.(*shape) //nolint:forcetypeassert // nothing else is stored
	s.once.Do(s.learn)
	return s
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()         //nolint:gochecknoglobals // a constant
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]() //nolint:gochecknoglobals // a constant
)

// decodesItself tells whether code of the type's own reads it; such a type is not looked into.
func decodesItself(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer {
		t = reflect.PointerTo(t)
	}
	return t.Implements(unmarshaler) || t.Implements(textUnmarshaler)
}

func (s *shape) learn() { //nolint:gocognit,cyclop // a case for each kind of field
	if s.of.Kind() != reflect.Struct {
		s.elem = s.of.Elem()
		return
	}
	s.fields, s.folded = map[string]reflect.Type{}, map[string]string{}
	seen := map[reflect.Type]bool{s.of: true}
	for level := []reflect.Type{s.of}; len(level) > 0; { // breadth first: what is nearer hides what is deeper
		var next []reflect.Type
		found := map[string]reflect.Type{}
		for _, t := range level {
			for i := range t.NumField() {
				f := t.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				inner := f.Type
				if inner.Kind() == reflect.Pointer {
					inner = inner.Elem()
				}
				switch {
				case f.Tag.Get("json") == "-":
				case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
					if !seen[inner] {
						seen[inner] = true
						next = append(next, inner)
					}
				case !f.IsExported():
				case name == "":
					found[f.Name] = f.Type
				default:
					found[name] = f.Type
				}
			}
		}
		for name, t := range found {
			if _, hidden := s.fields[name]; !hidden {
				s.fields[name] = t
			}
		}
		level = next
	}
	for name := range s.fields {
		s.folded[fold(name)] = name
	}
}

// element is the shape of what an array holds.
func (s *shape) element() *shape {
	if s == nil || s.elem == nil {
		return nil
	}
	return shapeOf(s.elem)
}

// member finds the field for a member, and the name under which it must occur once. A map keeps
// names apart that differ in case.
func (s *shape) member(name []byte, exact bool) (field *shape, as []byte, err error) {
	if s == nil || s.fields == nil {
		return s.element(), name, nil
	}
	if t, ok := s.fields[string(name)]; ok {
		return shapeOf(t), name, nil
	}
	meant, ok := s.folded[fold(string(name))]
	switch {
	case !ok: // not known
		return nil, name, nil
	case exact:
		return nil, nil, &AmbiguousError{Path: string(name), Reason: fmt.Sprintf("is not %q: names are case-sensitive", meant)}
	default:
		return shapeOf(s.fields[meant]), []byte(meant), nil
	}
}

// fold maps names that encoding/json takes for one to one: like strings.EqualFold.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}
