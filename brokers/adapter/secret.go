package adapter

import (
	"fmt"
	"io"
	"log/slog"
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
