package protobuf

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// description is what a contract has of a message; see envelope.Encoding.
type description struct {
	JSON   *schema                    `json:"json"`
	Layout map[string]map[string]part `json:"layout"`
}

// part is a field on the wire, by its number.
type part struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// schema is the part of JSON Schema that describes the JSON mapping of messages. Source:
// https://protobuf.dev/programming-guides/json/
type schema struct {
	Ref                  string             `json:"$ref,omitempty"`
	Type                 any                `json:"type,omitempty"`
	Format               string             `json:"format,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	ContentEncoding      string             `json:"contentEncoding,omitempty"`
	Properties           map[string]*schema `json:"properties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	AdditionalProperties *schema            `json:"additionalProperties,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	Defs                 map[string]*schema `json:"$defs,omitempty"`
}

func describe(d protoreflect.MessageDescriptor) ([]byte, error) {
	b := &builder{root: d, defs: map[string]*schema{}, layout: map[string]map[string]part{}}
	top := *b.object(d)
	if len(b.defs) > 0 {
		top.Defs = b.defs
	}
	b.add(d)
	text, err := json.Marshal(description{&top, b.layout})
	if err != nil {
		return nil, fmt.Errorf("protobuf: describe %s: %w", d.FullName(), err)
	}
	return text, nil
}

type builder struct {
	root   protoreflect.MessageDescriptor
	defs   map[string]*schema
	layout map[string]map[string]part
}

// wellKnown messages have a JSON of their own.
var wellKnown = map[protoreflect.FullName]*schema{
	"google.protobuf.Any":         {Type: "object"},
	"google.protobuf.Timestamp":   {Type: "string", Format: "date-time"},
	"google.protobuf.Duration":    {Type: "string", Pattern: `^-?[0-9]+(\.[0-9]+)?s$`},
	"google.protobuf.FieldMask":   {Type: "string"},
	"google.protobuf.Struct":      {Type: "object", AdditionalProperties: &schema{}},
	"google.protobuf.ListValue":   {Type: "array", Items: &schema{}},
	"google.protobuf.Value":       {},
	"google.protobuf.BoolValue":   {Type: "boolean"},
	"google.protobuf.StringValue": {Type: "string"},
	"google.protobuf.BytesValue":  {Type: "string", ContentEncoding: "base64"},
	"google.protobuf.Int32Value":  {Type: "integer", Format: "int32"},
	"google.protobuf.UInt32Value": {Type: "integer", Format: "uint32"},
	"google.protobuf.Int64Value":  {Type: "string", Format: "int64"},
	"google.protobuf.UInt64Value": {Type: "string", Format: "uint64"},
	"google.protobuf.FloatValue":  {Type: []string{"number", "string"}, Format: "float"}, // "NaN"
	"google.protobuf.DoubleValue": {Type: []string{"number", "string"}, Format: "double"},
}

// object is the schema of a message.
func (b *builder) object(d protoreflect.MessageDescriptor) *schema {
	if known := wellKnown[d.FullName()]; known != nil {
		return known
	}
	s := &schema{Type: "object", Properties: map[string]*schema{}}
	for f := range fields(d) {
		s.Properties[f.JSONName()] = b.field(f)
		if f.Cardinality() == protoreflect.Required {
			s.Required = append(s.Required, f.JSONName())
		}
	}
	slices.Sort(s.Required)
	return s
}

func fields(d protoreflect.MessageDescriptor) func(yield func(protoreflect.FieldDescriptor) bool) {
	return func(yield func(protoreflect.FieldDescriptor) bool) {
		for i := range d.Fields().Len() {
			if !yield(d.Fields().Get(i)) {
				return
			}
		}
	}
}

func (b *builder) field(f protoreflect.FieldDescriptor) *schema {
	switch {
	case f.IsMap():
		return &schema{Type: "object", AdditionalProperties: b.value(f.MapValue())}
	case f.IsList():
		return &schema{Type: "array", Items: b.value(f)}
	default:
		return b.value(f)
	}
}

func (b *builder) value(f protoreflect.FieldDescriptor) *schema {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return &schema{Type: "boolean"}
	case protoreflect.EnumKind:
		return enumOf(f.Enum())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return &schema{Type: "integer", Format: "int32"}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return &schema{Type: "integer", Format: "uint32"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return &schema{Type: "string", Format: "int64"}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return &schema{Type: "string", Format: "uint64"}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return &schema{Type: []string{"number", "string"}, Format: f.Kind().String()} // "NaN", "Infinity"
	case protoreflect.BytesKind:
		return &schema{Type: "string", ContentEncoding: "base64"}
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return b.message(f.Message())
	default:
		return &schema{Type: "string"}
	}
}

// message is a reference, but for one that is known.
func (b *builder) message(d protoreflect.MessageDescriptor) *schema {
	name := string(d.FullName())
	switch {
	case wellKnown[d.FullName()] != nil:
		return wellKnown[d.FullName()]
	case d == b.root:
		return &schema{Ref: "#"}
	case b.defs[name] == nil:
		b.defs[name] = &schema{} // taken, also by what is within it
		b.defs[name] = b.object(d)
	}
	return &schema{Ref: "#/$defs/" + name}
}

func enumOf(d protoreflect.EnumDescriptor) *schema {
	if d.FullName() == "google.protobuf.NullValue" {
		return &schema{Type: "null"}
	}
	s := &schema{Type: "string"}
	for i := range d.Values().Len() {
		s.Enum = append(s.Enum, string(d.Values().Get(i).Name()))
	}
	return s
}

// add writes down what a message, and what is within it, is on the wire.
func (b *builder) add(d protoreflect.MessageDescriptor) {
	name := string(d.FullName())
	if b.layout[name] != nil || strings.HasPrefix(name, "google.protobuf.") { // which do not change
		return
	}
	parts := map[string]part{}
	b.layout[name] = parts
	for f := range fields(d) {
		parts[strconv.Itoa(int(f.Number()))] = part{labelled(f), string(f.Name())}
		value := f
		if f.IsMap() {
			value = f.MapValue()
		}
		if value.Message() != nil {
			b.add(value.Message())
		}
		if enum := value.Enum(); enum != nil {
			b.addEnum(enum)
		}
	}
}

// addEnum adds an enum as one part: a value more is one that readers do not know.
func (b *builder) addEnum(d protoreflect.EnumDescriptor) {
	numbers, names := make([]string, d.Values().Len()), make([]string, d.Values().Len())
	for i := range numbers {
		value := d.Values().Get(i)
		numbers[i], names[i] = strconv.Itoa(int(value.Number())), string(value.Name())
	}
	b.layout[string(d.FullName())] = map[string]part{"values": {strings.Join(numbers, ", "), strings.Join(names, ", ")}}
}

// labelled is the type of a field, with its label. A member of a oneof is optional like others that can be absent.
func labelled(f protoreflect.FieldDescriptor) string {
	kind := kindOf(f)
	switch {
	case f.IsMap():
		return "map<" + kindOf(f.MapKey()) + ", " + kindOf(f.MapValue()) + ">"
	case f.IsList():
		return "repeated " + kind
	case f.Cardinality() == protoreflect.Required:
		return "required " + kind
	case f.HasPresence() && f.Message() == nil:
		return "optional " + kind
	}
	return kind
}

func kindOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Kind() == protoreflect.GroupKind:
		return "group " + string(f.Message().FullName())
	case f.Message() != nil:
		return string(f.Message().FullName())
	case f.Enum() != nil:
		return string(f.Enum().FullName())
	}
	return f.Kind().String()
}
