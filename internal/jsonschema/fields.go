package jsonschema

import (
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// field is one member of the object that encoding/json makes of a struct.
type field struct {
	name    string // in JSON
	goName  string
	owner   reflect.Type // the struct that declares it
	typ     reflect.Type
	tag     reflect.StructTag
	named   bool // by its tag
	quoted  bool // the option string, where it has an effect
	depth   int
	pointed bool // within an embedded pointer, without which it is absent

	omitEmpty, omitZero bool
}

// level is a struct that is embedded, with how deep.
type level struct {
	typ     reflect.Type
	pointed bool
}

// fieldsOf lists the members of a struct's object, by the rules of encoding/json: its typeFields,
// which has no exported form, step by step.
func fieldsOf(t reflect.Type) []field {
	var (
		all       []field
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
func memberOf(in level, sf reflect.StructField, depth int) (*field, *level) {
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
	f := &field{
		name: name, goName: sf.Name, owner: in.typ, typ: sf.Type, tag: sf.Tag, named: name != "", depth: depth, pointed: in.pointed,
		omitEmpty: has("omitempty"), omitZero: has("omitzero"), quoted: has("string") && quotable(inner.Kind()),
	}
	if name == "" {
		f.name = sf.Name
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
func dominant(all []field) []field {
	better := func(a, b *field) bool { return a.depth < b.depth || a.depth == b.depth && a.named && !b.named }
	byName := map[string][]field{}
	for i := range all {
		byName[all[i].name] = append(byName[all[i].name], all[i])
	}
	var left []field
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
	slices.SortFunc(left, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return left
}

var zeroer = reflect.TypeFor[interface{ IsZero() bool }]()

// optional reports whether the member can be absent.
func (f *field) optional() bool {
	return f.pointed || f.omitZero || f.omitEmpty && canBeEmpty(f.typ)
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

// leavesNilOut reports whether the member is absent where the field is nil.
func (f *field) leavesNilOut() bool {
	switch f.typ.Kind() {
	case reflect.Pointer, reflect.Interface:
		return f.omitEmpty || f.omitZero
	case reflect.Map, reflect.Slice: // which may have a word of their own about what is zero
		return f.omitEmpty || f.omitZero && !f.typ.Implements(zeroer) && !reflect.PointerTo(f.typ).Implements(zeroer)
	default:
		return false
	}
}
