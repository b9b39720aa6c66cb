package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// encoder is a json.Encoder and the buffer it writes to.
type encoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.buf)
	e.json.SetEscapeHTML(false) // it would change the bytes of every "<" for no reader of ours
	return e
}}

// maxPooledBuffer keeps one huge event from holding its memory forever.
const maxPooledBuffer = 64 << 10

// panicError is what a panic in the user's code becomes.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// Unwrap returns the value of the panic, where that is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

var errNotUTF8 = errors.New("the JSON is not valid UTF-8")

// addressable is a pointer to a copy of an event: encoding/json passes over methods with pointer
// receivers, of the event and of its fields, where it is given a value.
func addressable(v any) any {
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Struct || reflect.PointerTo(value.Type()).NumMethod() == value.NumMethod() {
		return v
	}
	pointer := reflect.New(value.Type())
	pointer.Elem().Set(value)
	return pointer.Interface()
}

// encodeJSON encodes v compactly, without HTML escaping, as valid UTF-8. A panic
// in a MarshalJSON or MarshalText becomes a *panicError.
func encodeJSON(v any) (out []byte, err error) {
	e := encoders.Get().(*encoder) //nolint:forcetypeassert // the pool holds nothing else
	// After a panic the encoder is not put back: who knows what state it is in.
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, &panicError{r}
		}
	}()
	e.buf.Reset()
	if err = e.json.Encode(v); err == nil {
		out = bytes.Clone(bytes.TrimSuffix(e.buf.Bytes(), []byte("\n")))
		// encoding/json repairs strings, but not what a json.RawMessage or a
		// MarshalJSON brings along.
		if !utf8.Valid(out) {
			out, err = nil, errNotUTF8
		}
	}
	if e.buf.Cap() <= maxPooledBuffer {
		encoders.Put(e)
	}
	return out, err
}

// encodeRemedy says what helps against an error of encodeJSON.
func encodeRemedy(err error) string {
	var (
		unsupportedType  *json.UnsupportedTypeError
		unsupportedValue *json.UnsupportedValueError
		marshaler        *json.MarshalerError
		panicked         *panicError
		encoding         *encodingError
	)
	switch {
	case errors.As(err, &encoding):
		return "raise an event that its encoding takes: not nil, complete, its texts valid UTF-8"
	case errors.As(err, &panicked):
		return "fix the MarshalJSON or MarshalText method that panics"
	case errors.As(err, &marshaler):
		return "fix the MarshalJSON or MarshalText method of " + goName(marshaler.Type)
	case errors.As(err, &unsupportedType):
		return "give the field of that type the tag `json:\"-\"`, or implement json.Marshaler"
	case errors.As(err, &unsupportedValue):
		return "JSON has no NaN, no infinity and no cycles: check the value before raising the event"
	default:
		return "make the event's JSON valid: UTF-8, proper numbers, no unpaired surrogates, no duplicate keys"
	}
}

// normalize snapshots an extension's value: the result is nil, a bool, a string, a
// json.Number, or a []any or map[string]any of these, and so equal to what a
// consumer decodes.
func normalize(value any) (any, error) {
	switch v := value.(type) {
	case nil, bool:
		return v, nil
	case string:
		return strings.ToValidUTF8(v, "\ufffd"), nil
	}
	raw, err := encodeJSON(value)
	if err != nil {
		return nil, err
	}
	var normal any
	err = decodeNumbers(raw, &normal)
	return normal, err
}

// decodeNumbers decodes one JSON value, keeping numbers as they are written.
func decodeNumbers(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return dec.Decode(into) //nolint:wrapcheck // callers say what they decode
}
