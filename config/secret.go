package config

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

const redacted = "[redacted]"

// Secret is a text that must not appear in output, such as a connection string with a password.
// However it is printed, logged or marshalled, it shows "[redacted]"; only Reveal gives the text.
// (The one exception is a map key: package json takes a string as it is.)
type Secret string

// Reveal returns the text. Hand it to a driver or a client, and to nothing that prints.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (s Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return redacted }

// Format implements fmt.Formatter: without it a verb that does not fit, such as %d, would print the
// text.
func (s Secret) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redacted) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON implements json.Marshaler.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalYAML implements the marshaller interface of the YAML libraries.
func (s Secret) MarshalYAML() (any, error) { return redacted, nil }

// Options are the settings of a broker whose type is registered in Go, as the YAML has them:
// string, int, float64, bool, nil, []any and map[string]any. Since any of them may be a password,
// printing, logging and marshalling show the names alone.
type Options map[string]any

// String implements fmt.Stringer.
func (o Options) String() string {
	return "[" + strings.Join(slices.Sorted(maps.Keys(o)), " ") + "]"
}

// GoString implements fmt.GoStringer.
func (o Options) GoString() string { return o.String() }

// Format implements fmt.Formatter.
func (o Options) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, o.String()) }

// LogValue implements slog.LogValuer.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// MarshalText implements encoding.TextMarshaler, and with it the JSON form.
func (o Options) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// MarshalYAML implements the marshaller interface of the YAML libraries.
func (o Options) MarshalYAML() (any, error) { return o.String(), nil }
