package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// tag is what the settings of an adapter say of one field; adapter.Type has the words.
type tag struct {
	key      string
	one      []string // the words that a text may be
	min, max string   // "" = the kind's own
	not      bool
}

func parseTag(text string) (t tag, err error) {
	parts := strings.Split(text, ",")
	t.key = parts[0]
	for _, part := range parts[1:] {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "one":
			t.one = strings.Split(value, "|")
		case "min":
			t.min = value
		case "max":
			t.max = value
		case "not":
			t.not = true
		default:
			err = fmt.Errorf("has the unknown word %q in its tag", name)
		}
	}
	if section, key, deeper := strings.Cut(t.key, "."); !keyPattern.MatchString(section) || deeper && !keyPattern.MatchString(key) {
		err = errors.New("has no key in its tag")
	}
	return t, err
}

// fieldsOf are the fields of a struct that have tags.
func fieldsOf(of reflect.Type) (fields []reflect.StructField) {
	for i := range of.NumField() {
		if field := of.Field(i); field.Tag.Get("config") != "" {
			fields = append(fields, field)
		}
	}
	return fields
}

// keysOf are the keys that a type of broker takes.
func keysOf(t adapter.Type) (keys []string) {
	if t.New == nil {
		return nil
	}
	settings := reflect.TypeOf(t.New())
	if settings == nil || settings.Kind() != reflect.Pointer || settings.Elem().Kind() != reflect.Struct {
		return nil
	}
	for _, field := range fieldsOf(settings.Elem()) {
		key, _, _ := strings.Cut(field.Tag.Get("config"), ",")
		key, _, _ = strings.Cut(key, ".")
		keys = append(keys, key)
	}
	return keys
}

// decode reads the keys of a mapping into the fields of a struct. A struct that cannot be decoded into
// is the adapter's fault, which is reported, too.
func (o *object) decode(into reflect.Value) {
	for _, field := range fieldsOf(into.Type()) {
		t, err := parseTag(field.Tag.Get("config"))
		if err == nil {
			in := o
			if section, key, deeper := strings.Cut(t.key, "."); deeper {
				in, t.key = o.section(section), key
			}
			err = in.decodeField(&t, into.FieldByIndex(field.Index))
		}
		if err != nil {
			o.problemf(o.at, o.path, "the adapter of this type is wrong: field %s %s", field.Name, err)
		}
	}
	for _, section := range o.sections {
		section.close()
	}
}

// section opens a mapping below this one, once.
func (o *object) section(key string) *object {
	if o.sections == nil {
		o.sections = map[string]*object{}
	}
	if o.sections[key] == nil {
		o.sections[key] = o.object(key)
	}
	return o.sections[key]
}

var durationType = reflect.TypeFor[time.Duration]()

func (o *object) decodeField(t *tag, dst reflect.Value) error {
	if !dst.CanSet() {
		return errors.New("is not exported")
	}
	switch kind := dst.Kind(); {
	case kind == reflect.Slice && dst.Type().Elem().Kind() == reflect.String:
		for _, item := range o.list(t.key) {
			dst.Set(reflect.Append(dst, reflect.ValueOf(item.text).Convert(dst.Type().Elem())))
		}
	case kind == reflect.Struct:
		o.section(t.key).decode(dst)
	case kind != reflect.Pointer:
		return o.decodeScalar(t, dst)
	case dst.Type().Elem().Kind() == reflect.Struct:
		section := reflect.New(dst.Type().Elem())
		if o.section(t.key).decode(section.Elem()); o.has(t.key) {
			dst.Set(section)
		}
	default:
		value := reflect.New(dst.Type().Elem())
		if err := o.decodeScalar(t, value.Elem()); err != nil {
			return err
		}
		if o.has(t.key) && o.sound(t.key) {
			dst.Set(value)
		}
	}
	return nil
}

func (o *object) decodeScalar(t *tag, dst reflect.Value) error {
	switch kind := dst.Kind(); {
	case dst.Type() == durationType:
		return o.decodeDuration(t, (*time.Duration)(dst.Addr().UnsafePointer()))
	case kind == reflect.String && len(t.one) > 0:
		if word := o.choice(t.key, t.one...); word != "" {
			dst.SetString(word)
		}
	case kind == reflect.String:
		var text string
		if o.text(t.key, &text) != nil {
			dst.SetString(text)
		}
	case kind == reflect.Bool:
		value := dst.Bool() != t.not
		o.boolean(t.key, &value)
		dst.SetBool(value != t.not)
	case kind == reflect.Int:
		return o.decodeInteger(t, dst)
	case kind == reflect.Float64:
		n := dst.Float()
		o.number(t.key, &n, 0, math.MaxFloat64)
		dst.SetFloat(n)
	default:
		return fmt.Errorf("is of type %s, which has no form in a configuration", dst.Type())
	}
	return nil
}

func (o *object) decodeDuration(t *tag, dst *time.Duration) (err error) {
	var least time.Duration
	if t.min != "" {
		if least, err = time.ParseDuration(t.min); err != nil {
			return errors.New("has no duration behind min in its tag")
		}
	}
	o.duration(t.key, dst, least)
	return nil
}

func (o *object) decodeInteger(t *tag, dst reflect.Value) (err error) {
	least, most := 1, math.MaxInt32
	for _, bound := range []struct {
		text string
		dst  *int
	}{{t.min, &least}, {t.max, &most}} {
		if bound.text != "" {
			if *bound.dst, err = strconv.Atoi(bound.text); err != nil {
				return errors.New("has no number behind min or max in its tag")
			}
		}
	}
	n := int(dst.Int())
	if t.min == "" {
		o.integer(t.key, &n, most)
	} else {
		o.limit(t.key, &n, least, most)
	}
	dst.SetInt(int64(n))
	return nil
}

// lookup finds a key of the tags, with dots between those of a section within another one. f is nil
// where it is not there; in is the mapping that it would stand in.
func (o *object) lookup(key string) (in *object, f *field) {
	for {
		name, rest, deeper := strings.Cut(key, ".")
		if !deeper {
			return o, o.find(name)
		}
		below := o.sections[name]
		if below == nil {
			return o, nil
		}
		o, key = below, rest
	}
}
