package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"strings"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// Encoding is an [Option] of [Register] and of [As]: it gives a Go type an encoding of its own beside JSON, in which
// its events leave to external brokers, such as Protobuf (package protobuf of Fanout) or Avro. The internal form has
// the JSON all the same, and so has every form for a broker that asks for it (encoding: json in a configuration).
// With it an event, or what a contract makes, may be a pointer.
//
// Marshal, MarshalJSON and Describe must be safe for concurrent use. An error of theirs, or a panic, is reported by
// [Catalog.Seal], and so fails the transaction, with the place where the event was raised.
type Encoding struct {
	// ContentType is the media type of what Marshal returns, such as "application/protobuf; proto=shop.OrderPlaced".
	// At most 256 bytes; not one of JSON, by which consumers could not tell the bytes from an envelope. Required.
	ContentType string
	// Marshal returns the event's bytes, the same for equal events, in a slice that nothing else writes to. It is called
	// when the event is raised, where the event type leaves. Required.
	Marshal func(event any) ([]byte, error)
	// MarshalJSON returns the event's JSON; white space between its tokens is removed. It is called when the event is
	// raised. Default: encoding/json.
	MarshalJSON func(event any) ([]byte, error)
	// UnmarshalJSON makes an event of such JSON, for [Catalog.Unmarshal]. Default: encoding/json.
	UnmarshalJSON func(data []byte) (event any, err error)
	// Describe returns what package contract writes of the type: a JSON object with the members "json", a JSON Schema of
	// what MarshalJSON returns, and "layout", which says of each message or record in the bytes what parts it has, by what
	// a reader knows them by on the wire: {"shop.OrderPlaced": {"1": {"type": "repeated string", "name": "ids"}}}. The type
	// is a promise, the name is not. Default: none; the contract has the content type, and any JSON.
	Describe func() ([]byte, error)
}

const setsEncoding = "encoding"

func (e Encoding) option() *option {
	return &option{
		label: "Encoding{" + e.ContentType + "}", sets: setsEncoding, typeOnly: true,
		check: func(reflect.Type) *flaw { return e.flaw() },
		set:   func(s *settings) { s.encoding = &e },
	}
}

// flaw is what is wrong with an encoding.
func (e Encoding) flaw() *flaw {
	if e.Marshal == nil {
		return &flaw{errors.New("its function Marshal is nil"), "set it"}
	}
	if err := boundFlaw(e.ContentType, limits.MaxContentTypeBytes); err != nil {
		return &flaw{fmt.Errorf("its content type %w", err), "shorten it; in Protobuf, the full name of the message"}
	}
	media, _, err := mime.ParseMediaType(e.ContentType)
	switch {
	case err != nil || !strings.Contains(media, "/"):
		return &flaw{fmt.Errorf("its content type %q is no media type", e.ContentType), `use one such as "application/protobuf"`}
	case strings.HasSuffix(media, "json") || strings.HasPrefix(media, "application/cloudevents"):
		return &flaw{fmt.Errorf("its content type %q is that of messages without an encoding of their own", e.ContentType), "leave the option out for JSON"}
	}
	return nil
}

// encoded is what an encoding has made of an event.
type encoded struct {
	json  []byte
	bytes []byte // nil where they are not needed
	err   error
}

// encodingError says that an encoding failed.
type encodingError struct{ cause error }

func (e *encodingError) Error() string { return e.cause.Error() }
func (e *encodingError) Unwrap() error { return e.cause }

// encode encodes an event; leaves says whether its bytes are needed.
func (e Encoding) encode(event any, leaves bool) (result encoded) {
	returned := false
	defer func() {
		if r := recover(); !returned { // r is nil with GODEBUG=panicnil=1
			result = encoded{err: &panicError{r}}
		}
		if result.err != nil {
			result = encoded{err: &encodingError{result.err}}
		}
	}()
	if e.MarshalJSON == nil {
		result.json, result.err = encodeJSON(addressable(event))
	} else if result.json, result.err = e.MarshalJSON(event); result.err == nil {
		result.json, result.err = encodeJSON(json.RawMessage(result.json)) // without white space, and valid
	}
	if result.err == nil && leaves {
		if result.bytes, result.err = e.Marshal(event); result.bytes == nil {
			result.bytes = []byte{} // of a message without a value, say
		}
	}
	returned = true
	return result
}

// Encoding returns the encoding that events of this type, or what a contract makes of them, have beside JSON; ok is
// false where they have none.
func (t *EventType) Encoding() (encoding Encoding, ok bool) {
	if t.settings.encoding == nil {
		return Encoding{}, false
	}
	return *t.settings.encoding, true
}

// leavesItself reports whether events of this type leave, rather than what contracts make of them.
func (t *EventType) leavesItself() bool { return t.settings.published && len(t.conversions) == 0 }

// MarshalData returns the data alone as it leaves, and its media type: in the encoding that the event type has of its
// own ([Encoding]), or as JSON. The bytes are shared: do not write into them. The error is that of
// [Message.MarshalExternal].
func (m *Message) MarshalData() (data []byte, contentType string, err error) {
	if err := m.mayLeave(); err != nil {
		return nil, "", err
	}
	if m.Routing.encoded == nil {
		return m.Data, FormatNative.ContentType(), nil
	}
	return m.Routing.encoded, m.Routing.Type.settings.encoding.ContentType, nil
}

// HasEncoding reports whether the data leaves in an encoding of its own, unless a broker wants JSON; see [Encoding].
func (m *Message) HasEncoding() bool { return m.Routing.encoded != nil }
