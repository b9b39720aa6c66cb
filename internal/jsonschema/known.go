package jsonschema

import (
	"encoding/json"
	"reflect"
)

// knownTypes write their JSON themselves, in a way that is known. They are named, and not imported:
// most of them are of modules that are not ours.
var knownTypes = map[string]*Schema{
	"time.Time":                       {Type: Types{String}, Format: "date-time"},
	"encoding/json.RawMessage":        {},
	"github.com/google/uuid.UUID":     {Type: Types{String}, Format: "uuid"},
	"github.com/google/uuid.NullUUID": {Type: Types{String, Null}, Format: "uuid"},
	"github.com/gofrs/uuid.UUID":      {Type: Types{String}, Format: "uuid"},
	"github.com/gofrs/uuid/v5.UUID":   {Type: Types{String}, Format: "uuid"},
	"gorm.io/gorm.DeletedAt":          {Type: Types{String, Null}, Format: "date-time"},
}

// decimals are strings or numbers, as the program has set: their zero shows which.
var decimals = map[string]bool{
	"github.com/shopspring/decimal.Decimal":     true,
	"github.com/shopspring/decimal.NullDecimal": true,
}

// knownType describes a type that is known by name; nil where it is not.
func knownType(t reflect.Type) *Schema {
	name := t.PkgPath() + "." + t.Name()
	if !decimals[name] {
		return knownTypes[name]
	}
	s := &Schema{Type: Types{String}, Pattern: `^-?[0-9]+(\.[0-9]+)?$`}
	// A decimal's zero value, or that of a nullable one which is set.
	value := reflect.New(t).Elem()
	if valid := value.FieldByName("Valid"); valid.IsValid() && valid.CanSet() {
		valid.SetBool(true)
	}
	if text, err := json.Marshal(value.Interface()); err == nil && text[0] != '"' {
		s = &Schema{Type: Types{Number}}
	}
	if value.FieldByName("Valid").IsValid() {
		s = s.Nullable()
	}
	return s
}
