package journal

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"gorm.io/gorm/schema"
)

// IsAggregate reports whether a struct type, or what a pointer type points to, has a uow.Aggregate
// that belongs to it: in an embedded struct, in a field that GORM embeds (gorm:"embedded"), or as a
// field of type Aggregate under any name, by value or by pointer. What methods and other fields the
// type has does not matter. It is false for a type that [CheckAggregate] objects to.
func IsAggregate(t reflect.Type) bool { return placeIn(t).belongs }

// CheckAggregate returns an *[AggregateError] when a struct type, or what a pointer type points to,
// holds a uow.Aggregate whose events would be lost.
func CheckAggregate(t reflect.Type) error {
	if problem := placeIn(t).problem; problem != nil {
		return problem
	}
	return nil
}

// RecorderOf returns the recorder of an aggregate, given as a struct or as a pointer to one. A
// value that cannot be addressed is a copy: it has a recorder only when it was made after the first
// Raise, whether its events are pending or written. ok is false when there is none, also where a
// pointer on the way to the Aggregate is nil, and for types that [CheckAggregate] objects to.
func RecorderOf(v reflect.Value) (recorder *Recorder, ok bool) {
	recorder, _, ok = Find(v)
	return recorder, ok
}

// Find is RecorderOf that also tells apart the values that share a recorder: carrier is nil for one that
// cannot be addressed.
func Find(v reflect.Value) (recorder *Recorder, carrier *Carrier, ok bool) {
	v, ok = aggregateIn(v)
	if !ok {
		return nil, nil, false
	}
	if !v.CanAddr() {
		recorder = (*Recorder)(v.Field(0).Field(0).UnsafePointer()) // a fresh one would be lost with the copy
		return recorder, nil, recorder != nil
	}
	carrier = addressed(v)
	return carrier.Recorder(), carrier, true
}

// Adopt gives an aggregate, a struct that can be addressed or a pointer to one, the recorder of the
// one that it replaces. What it has raised itself is dropped.
func Adopt(v reflect.Value, recorder *Recorder) {
	if v, ok := aggregateIn(v); ok && v.CanAddr() {
		addressed(v).set(recorder)
	}
}

// aggregateIn is the Aggregate of a struct. ok is false where it has none, or a pointer on the way
// to it is nil.
func aggregateIn(v reflect.Value) (aggregate reflect.Value, ok bool) {
	if v = pointedTo(v); v.Kind() != reflect.Struct {
		return v, false
	}
	place := placeIn(v.Type())
	if !place.belongs {
		return v, false
	}
	for _, field := range place.path {
		if v = pointedTo(v.Field(field)); !v.IsValid() { // it can have raised nothing
			return v, false
		}
	}
	return v, true
}

func addressed(v reflect.Value) *Carrier {
	return (*Carrier)(v.Addr().UnsafePointer()) // not by Interface: the field may be unexported
}

// pointedTo is what a chain of pointers and interfaces leads to: the zero Value where it ends in
// nil.
func pointedTo(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

func pointedToType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// AggregateError says that a struct type holds a uow.Aggregate whose events would be lost: a second
// one, or one in a place for which GORM writes no row.
type AggregateError struct {
	// Type is the struct.
	Type reflect.Type
	// Fields lead to the two or more that it has, or to the one that belongs to no row, as in
	// "lines[].Aggregate".
	Fields []string
}

// Error implements error.
func (e *AggregateError) Error() string {
	if len(e.Fields) > 1 {
		return fmt.Sprintf("uow: find the aggregate of %s: it has %d, %s, and the events of only one could be captured: "+
			`keep one, and move a struct that is an aggregate of its own to a named field without the tag gorm:"embedded"`,
			e.Type, len(e.Fields), strings.Join(e.Fields, " and "))
	}
	return fmt.Sprintf("uow: find the aggregate of %s: nothing writes a row for %s, so its events would be lost: "+
		`raise them on an aggregate that the struct embeds (without a name, or tagged gorm:"embedded"), or hold a pointer there to what is tracked by itself`,
		e.Type, e.Fields[0])
}

// place is where a struct type has its Aggregate.
type place struct {
	belongs bool
	path    []int // the field to take at each step, through pointers
	problem *AggregateError
}

var (
	places sync.Map // reflect.Type -> *place: every statement asks

	carrierType = reflect.TypeFor[Carrier]()
	valuerType  = reflect.TypeFor[driver.Valuer]()
)

// isMarker reports whether a type is uow.Aggregate, the struct that is a [Carrier] and nothing
// else.
func isMarker(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() == 1 && t.Field(0).Type == carrierType
}

func placeIn(t reflect.Type) *place {
	if known, ok := places.Load(t); ok {
		return known.(*place) //nolint:forcetypeassert // the map holds nothing else
	}
	found := findPlace(pointedToType(t))
	places.Store(t, found)
	return found
}

func findPlace(t reflect.Type) *place {
	switch {
	case isMarker(t):
		return &place{belongs: true}
	case t.Kind() != reflect.Struct:
		return &place{}
	}
	s := search{within: []reflect.Type{t}}
	s.fields(t, nil, "")
	switch {
	case len(s.paths) > 1:
		return &place{problem: &AggregateError{Type: t, Fields: s.names}}
	case s.stray != "":
		return &place{problem: &AggregateError{Type: t, Fields: []string{s.stray}}}
	case len(s.paths) == 0:
		return &place{}
	}
	return &place{belongs: true, path: s.paths[0]}
}

// search goes through a struct type and what is embedded in it.
type search struct {
	within []reflect.Type // the structs on the way: one that embeds itself, by a pointer, has no end
	paths  [][]int
	names  []string // of the paths
	stray  string   // the first Aggregate that belongs to no row
}

func (s *search) fields(t reflect.Type, path []int, name string) {
	for i := range t.NumField() {
		field := t.Field(i)
		inner := pointedToType(field.Type)
		settings := schema.ParseTagSetting(field.Tag.Get("gorm"), ";")
		_, tagged := settings["EMBEDDED"]
		switch {
		case isMarker(inner):
			s.paths = append(s.paths, append(slices.Clone(path), i))
			s.names = append(s.names, name+field.Name)
		case inner.Kind() == reflect.Struct && (field.Anonymous || tagged):
			if !slices.Contains(s.within, inner) {
				s.within = append(s.within, inner)
				s.fields(inner, append(path, i), name+field.Name+".")
				s.within = s.within[:len(s.within)-1]
			}
		case s.stray == "" && !mayRelate(field, settings):
			s.stray = stray(field.Type, name+field.Name, s.within)
		}
	}
}

// mayRelate reports whether GORM may take a field for a relation, whose rows it writes by
// statements of their own.
func mayRelate(field reflect.StructField, settings map[string]string) bool {
	_, ignored := settings["-"]
	_, serialized := settings["SERIALIZER"]
	return field.IsExported() && !ignored && !serialized && !reflect.PointerTo(pointedToType(field.Type)).Implements(valuerType)
}

// stray looks for an Aggregate in a value that is part of its owner and has no row: by value, in an
// array, slice or map. What is behind a pointer, or has a primary key, belongs to another owner,
// who can save it or track it by itself.
func stray(t reflect.Type, name string, within []reflect.Type) string {
	switch t.Kind() {
	case reflect.Array, reflect.Slice, reflect.Map:
		return stray(t.Elem(), name+"[]", within)
	case reflect.Struct:
	default:
		return ""
	}
	if isMarker(t) {
		return name
	}
	if slices.Contains(within, t) || hasKey(t) {
		return ""
	}
	within = append(slices.Clone(within), t)
	for i := range t.NumField() {
		field := t.Field(i)
		if found := stray(field.Type, name+"."+field.Name, within); found != "" {
			return found
		}
	}
	return ""
}

// hasKey reports whether GORM finds a primary key in a struct. within are those that it was reached
// by.
func hasKey(t reflect.Type, within ...reflect.Type) bool {
	within = append(within, t)
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.IsExported() {
			continue
		}
		settings := schema.ParseTagSetting(field.Tag.Get("gorm"), ";")
		_, tagged := settings["EMBEDDED"]
		inner := pointedToType(field.Type)
		switch embedded := inner.Kind() == reflect.Struct && (field.Anonymous || tagged); {
		case embedded && !slices.Contains(within, inner) && hasKey(inner, within...),
			strings.EqualFold(field.Name, "id"), settings["PRIMARYKEY"] != "", settings["PRIMARY_KEY"] != "":
			return true
		}
	}
	return false
}
