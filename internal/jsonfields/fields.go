// Package jsonfields knows which members encoding/json writes of a struct, and gives those without a name in JSON one in
// camelCase.
package jsonfields

import (
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Field is one member of the object that encoding/json makes of a struct.
type Field struct {
	Name   string // in JSON
	GoName string
	Owner  reflect.Type // the struct that declares it
	Type   reflect.Type
	Tag    reflect.StructTag
	Named  bool // by its tag
	Quoted bool // the option string, where it has an effect

	depth               int
	pointed             bool // within an embedded pointer, without which it is absent
	omitEmpty, omitZero bool
}

// level is a struct that is embedded, with how deep.
type level struct {
	typ     reflect.Type
	pointed bool
}

// Of lists the members of a struct's object, by the rules of encoding/json: its typeFields,
// which has no exported form, step by step.
func Of(t reflect.Type) []Field {
	var (
		all       []Field
		visited   = map[reflect.Type]bool{}
		nextCount map[reflect.Type]int
	)
	for depth, next := 0, []level{{typ: t}}; len(next) > 0; depth++ {
		current, count := next, nextCount
		next, nextCount = nil, map[reflect.Type]int{}
		for _, in := range current {
			if visited[in.typ] {
				continue
			}
			visited[in.typ] = true
			for i := range in.typ.NumField() {
				f, embedded := memberOf(in, in.typ.Field(i), depth)
				switch {
				case f != nil:
					all = append(all, *f)
					if count[in.typ] > 1 { // embedded twice on one level: the two annihilate each other
						all = append(all, *f)
					}
				case embedded != nil:
					if nextCount[embedded.typ]++; nextCount[embedded.typ] == 1 {
						next = append(next, *embedded)
					}
				}
			}
		}
	}
	return dominant(all)
}

// memberOf is what a field of a struct adds: a member, an embedded struct to look into, or nothing.
func memberOf(in level, sf reflect.StructField, depth int) (*Field, *level) {
	inner := sf.Type
	if inner.Kind() == reflect.Pointer && inner.Name() == "" {
		inner = inner.Elem()
	}
	tag := sf.Tag.Get("json")
	if tag == "-" || !sf.IsExported() && (!sf.Anonymous || inner.Kind() != reflect.Struct) {
		return nil, nil
	}
	name, options, _ := strings.Cut(tag, ",")
	if !validName(name) {
		name = ""
	}
	if name == "" && sf.Anonymous && inner.Kind() == reflect.Struct {
		return nil, &level{typ: inner, pointed: in.pointed || sf.Type.Kind() == reflect.Pointer}
	}
	has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
	f := &Field{
		Name: name, GoName: sf.Name, Owner: in.typ, Type: sf.Type, Tag: sf.Tag, Named: name != "", depth: depth, pointed: in.pointed,
		omitEmpty: has("omitempty"), omitZero: has("omitzero"), Quoted: has("string") && quotable(inner.Kind()),
	}
	if name == "" {
		f.Name = sf.Name
	}
	return f, nil
}

// validName reports whether encoding/json takes a name from a tag.
func validName(name string) bool {
	for _, c := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return name != ""
}

func quotable(kind reflect.Kind) bool {
	return kind >= reflect.Bool && kind <= reflect.Float64 || kind == reflect.String
}

// dominant leaves of the fields of one name the one that encoding/json writes: the one that is
// embedded least deeply, of these the one with a tag, and none where there are several of these.
func dominant(all []Field) []Field {
	better := func(a, b *Field) bool { return a.depth < b.depth || a.depth == b.depth && a.Named && !b.Named }
	byName := map[string][]Field{}
	for i := range all {
		byName[all[i].Name] = append(byName[all[i].Name], all[i])
	}
	var left []Field
	for _, same := range byName {
		first := 0
		for i := range same {
			if better(&same[i], &same[first]) {
				first = i
			}
		}
		alone := true
		for i := range same {
			alone = alone && (i == first || better(&same[first], &same[i]))
		}
		if alone {
			left = append(left, same[first])
		}
	}
	slices.SortFunc(left, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	return left
}

var zeroer = reflect.TypeFor[interface{ IsZero() bool }]()

// Optional reports whether the member can be absent.
func (f *Field) Optional() bool {
	return f.pointed || f.omitZero || f.omitEmpty && canBeEmpty(f.Type)
}

func canBeEmpty(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return false
	case reflect.Array:
		return t.Len() == 0
	default:
		return true
	}
}

// LeavesNilOut reports whether the member is absent where the field is nil.
func (f *Field) LeavesNilOut() bool {
	switch f.Type.Kind() {
	case reflect.Pointer, reflect.Interface:
		return f.omitEmpty || f.omitZero
	case reflect.Map, reflect.Slice: // which may have a word of their own about what is zero
		return f.omitEmpty || f.omitZero && !f.Type.Implements(zeroer) && !reflect.PointerTo(f.Type).Implements(zeroer)
	default:
		return false
	}
}
