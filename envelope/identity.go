package envelope

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// A field of an event with the tag `fanout:"id"` is the id of the aggregate that raises it:
//
//	type OrderPlaced struct {
//		OrderID  uint `fanout:"id"`
//		Customer string
//	}
//
// Where it is zero when the event is raised, as before an INSERT whose key the database makes, it is
// filled in when the message is made, and the data is encoded then.
const idTag = "id"

// idField is the field of an event type with that tag.
type idField struct {
	index []int
	name  string
	fill  func(field reflect.Value, id string) error // nil where the type of the field is none for an id
}

var idFields sync.Map // reflect.Type -> *idField, nil where there is none

// idFieldOf finds the field, in the struct itself or in one that it embeds by value.
func idFieldOf(t reflect.Type) *idField {
	if known, ok := idFields.Load(t); ok {
		return known.(*idField) //nolint:forcetypeassert // the map holds nothing else
	}
	var found *idField
	if t.Kind() == reflect.Struct {
		for _, field := range reflect.VisibleFields(t) {
			if tag, _, _ := strings.Cut(field.Tag.Get("fanout"), ","); tag == idTag && found == nil {
				found = &idField{index: field.Index, name: field.Name}
				if field.IsExported() && reached(t, field.Index) {
					found.fill = filler(field.Type)
				}
			}
		}
	}
	idFields.Store(t, found)
	return found
}

// reached reports whether no pointer, which may be nil, is on the way to a field.
func reached(t reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		if t = t.Field(i).Type; t.Kind() != reflect.Struct {
			return false
		}
	}
	return true
}

// filler is how a field of a type gets an id.
func filler(t reflect.Type) func(field reflect.Value, id string) error {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) { // as of UUIDs
		return func(field reflect.Value, id string) error {
			target, _ := reflect.TypeAssert[encoding.TextUnmarshaler](field.Addr())
			return target.UnmarshalText([]byte(id))
		}
	}
	switch t.Kind() {
	case reflect.String:
		return func(field reflect.Value, id string) error {
			field.SetString(id)
			return nil
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(field reflect.Value, id string) error {
			n, err := strconv.ParseInt(id, 10, t.Bits())
			field.SetInt(n)
			return err
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(field reflect.Value, id string) error {
			n, err := strconv.ParseUint(id, 10, t.Bits())
			field.SetUint(n)
			return err
		}
	default:
		return nil
	}
}

// idFlaw is what is wrong with the tag of an event type.
func idFlaw(t reflect.Type) *flaw {
	if field := idFieldOf(t); field != nil && field.fill == nil {
		return &flaw{
			fmt.Errorf("its field %s has the tag `fanout:%q`, and cannot be filled in", field.name, idTag),
			"the id of an aggregate is an integer, a text, or what reads itself from text, such as a UUID, in an exported field that no pointer leads to",
		}
	}
	return nil
}

// awaitsID reports whether an event is to get the id of its aggregate.
func awaitsID(t reflect.Type, data any) bool {
	field := idFieldOf(t)
	return field != nil && field.fill != nil && reflect.ValueOf(data).FieldByIndex(field.index).IsZero()
}

// Identified returns the data of an event with the id of its aggregate in the field with the tag
// `fanout:"id"`, where that is zero: a copy, for Data stays as it was raised. Without such a field, or
// for an event without an aggregate, it is Data. The error says why the id does not fit the field.
func (e *Event) Identified(src Source) (any, error) {
	t := reflect.TypeOf(e.Data)
	if src.ID == "" || t == nil || !awaitsID(t, e.Data) {
		return e.Data, nil
	}
	field := idFieldOf(t)
	filled := reflect.New(t).Elem()
	filled.Set(reflect.ValueOf(e.Data))
	if err := field.fill(filled.FieldByIndex(field.index), src.ID); err != nil {
		return nil, fmt.Errorf("the id %q of its %s does not fit its field %s: %w", src.ID, src.Aggregate, field.name, bare(err))
	}
	return filled.Interface(), nil
}

// bare leaves out what strconv repeats of the text.
func bare(err error) error {
	if number := (*strconv.NumError)(nil); errors.As(err, &number) {
		return number.Err
	}
	return err
}

// UnsetID returns the name of a field of the data that is zero, and by its name, such as OrderID in an event of
// an Order, the id of the aggregate that raised it: most likely the event was raised before the database
// had made the key. Empty where there is none, or the field will be filled in.
func (e *Event) UnsetID(src Source) string {
	t := reflect.TypeOf(e.Data)
	if src.ID == "" || src.ID == "0" || t == nil || t.Kind() != reflect.Struct {
		return ""
	}
	names, _ := namesOfIDs.Load(namedID{t, src.Aggregate})
	index, ok := names.([]int)
	if !ok {
		index = namedIDs(t, src.Aggregate)
		namesOfIDs.Store(namedID{t, src.Aggregate}, index)
	}
	if len(index) == 0 || awaitsID(t, e.Data) || !reflect.ValueOf(e.Data).FieldByIndex(index).IsZero() {
		return ""
	}
	return t.FieldByIndex(index).Name
}

type namedID struct {
	event     reflect.Type
	aggregate string
}

var namesOfIDs sync.Map // namedID -> []int, the index of the field, empty where there is none

// namedIDs is where an event has the id of an aggregate by its name.
func namedIDs(t reflect.Type, aggregate string) []int {
	for _, field := range reflect.VisibleFields(t) {
		id := strings.EqualFold(field.Name, aggregate+"ID") && reached(t, field.Index)
		if id && (filler(field.Type) != nil || field.Type.Kind() == reflect.Array) {
			return field.Index
		}
	}
	return []int{}
}
