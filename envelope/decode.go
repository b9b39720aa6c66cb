package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/strictjson"
)

// wireMessage is what the native forms have in common. Pointers tell absent
// members from empty ones.
type wireMessage struct {
	SpecVersion json.RawMessage `json:"specversion"` // of CloudEvents: we have it further inside
	Data        json.RawMessage `json:"data"`
	Metadata    json.RawMessage `json:"metadata"`
}

type wireMetadata struct {
	Headers    Headers     `json:"headers"`
	Envelope   Envelope    `json:"envelope"`
	Domain     wireDomain  `json:"domain"`
	EventStore *EventStore `json:"event_store"`
	Extensions Extensions  `json:"extensions"`
}

// wireDomain shadows two members that the internal form always has and the
// external form never.
type wireDomain struct {
	Domain

	Asynchronous *bool `json:"asynchronous"`
	Priority     *int  `json:"priority"`
}

// Decode reads a message of any form and tells which it was. What a form does not carry stays
// empty, Routing always; of a CloudEvent that is the streams and most of the domain, and the data where it
// is not JSON (see [DecodeCloudEvent]). Unknown members are ignored, numbers in extensions are [json.Number]. What
// could be understood in two ways is refused: a member that occurs twice, also within the data, one
// whose name differs from that of a known member only in case, and data that is null. The error is
// a *[DecodeError]. The result does not share memory with b.
func Decode(b []byte) (Format, *Message, error) {
	wire, err := decodeOuter("", b)
	if err != nil {
		return "", nil, err
	}
	if wire.SpecVersion != nil {
		ce, err := DecodeCloudEvent(b)
		if err != nil {
			return FormatCloudEvents, nil, err
		}
		m, err := ce.message()
		return FormatCloudEvents, m, err
	}
	form, m, err := decodeNative("", wire)
	return form, m, err
}

// DecodeInternal reads the internal form. The error is a *[DecodeError]; the
// external form is one, too.
func DecodeInternal(b []byte) (*Message, error) {
	wire, err := decodeOuter(FormatInternal, b)
	if err != nil {
		return nil, err
	}
	form, m, err := decodeNative(FormatInternal, wire)
	if err != nil {
		return nil, err
	}
	if form != FormatInternal {
		return nil, decodeFlaw(FormatInternal, "use DecodeExternal, or Decode for any form", "this is the external form")
	}
	return m, nil
}

// DecodeExternal reads the external form. Of the internal form, which is a
// superset, it reads that part. The error is a *[DecodeError].
func DecodeExternal(b []byte) (*ExternalMessage, error) {
	wire, err := decodeOuter(FormatNative, b)
	if err != nil {
		return nil, err
	}
	_, m, err := decodeNative(FormatNative, wire)
	if err != nil {
		return nil, err
	}
	x := m.external(m.Metadata.Extensions)
	return &x, nil
}

// formatRemedy ends the errors of bytes that were never ours.
const formatRemedy = "check which producer writes to this stream, and its format"

func decodeFlaw(form Format, remedy, cause string, args ...any) error {
	return &DecodeError{form, fmt.Errorf(cause, args...), remedy}
}

func decodeOuter(form Format, b []byte) (*wireMessage, error) {
	if !utf8.Valid(b) {
		return nil, decodeFlaw(form, formatRemedy, "it is not valid UTF-8")
	}
	var wire wireMessage
	if err := strictjson.Unmarshal(b, &wire); err != nil {
		return nil, &DecodeError{form, err, formatRemedy}
	}
	return &wire, nil
}

// decodeNative reads both native forms. Asked is for error texts.
func decodeNative(asked Format, wire *wireMessage) (Format, *Message, error) {
	if wire.Data == nil {
		return "", nil, decodeFlaw(asked, formatRemedy, "member data is missing")
	}
	if isNull(wire.Data) {
		return "", nil, decodeFlaw(asked, formatRemedy, "member data is null")
	}
	if wire.Metadata == nil {
		return "", nil, decodeFlaw(asked, formatRemedy, "member metadata is missing")
	}
	var meta wireMetadata
	if err := strictjson.Unmarshal(wire.Metadata, &meta); err != nil {
		return "", nil, &DecodeError{asked, fmt.Errorf("member metadata: %w", err), formatRemedy}
	}
	meta.Headers.Time = meta.Headers.Time.UTC()
	meta.Headers.Deadline = meta.Headers.Deadline.UTC()
	if err := meta.check(asked); err != nil {
		return "", nil, err
	}

	form := FormatNative
	domain := meta.Domain.Domain
	if meta.Domain.Asynchronous != nil {
		form, domain.Asynchronous = FormatInternal, *meta.Domain.Asynchronous
	}
	if meta.Domain.Priority != nil {
		form, domain.Priority = FormatInternal, *meta.Domain.Priority
	}
	if meta.Envelope.Checksum != "" {
		form = FormatInternal
	}
	return form, &Message{
		Data: wire.Data,
		Metadata: Metadata{
			Headers:    meta.Headers,
			Envelope:   meta.Envelope,
			Domain:     domain,
			EventStore: meta.EventStore,
			Extensions: meta.Extensions,
		},
	}, nil
}

// check asks for what a consumer cannot do without.
func (m *wireMetadata) check(form Format) error {
	missing := ""
	switch h := &m.Headers; {
	case h.ID == uuid.Nil:
		missing = "headers.id"
	case h.Type == "":
		missing = "headers.type"
	case h.Stream == "":
		missing = "headers.stream"
	case h.Time.IsZero():
		missing = "headers.time"
	}
	if missing != "" {
		return decodeFlaw(form, formatRemedy, "member metadata.%s is missing", missing)
	}
	if v := m.Envelope.SpecVersion; v != "" && !strings.HasPrefix(v, "1.") {
		return decodeFlaw(form, "update this consumer", "metadata.envelope.specversion is %q, known is %q", v, specVersion)
	}
	if !yearHasFourDigits(m.Headers.Time) || !yearHasFourDigits(m.Headers.Deadline) {
		return decodeFlaw(form, formatRemedy, "a time of metadata.headers is outside the years 1 to 9999 in UTC")
	}
	return nil
}

// Unmarshal decodes the data of a message into a value of the Go type registered
// for its wire type. The error is an *[UnknownTypeError], which most consumers
// skip, or a *[DecodeError].
func (c *Catalog) Unmarshal(wireType string, data json.RawMessage) (any, error) {
	t, ok := c.ByWireType(wireType)
	if !ok {
		return nil, &UnknownTypeError{WireType: wireType, Context: c.context}
	}
	if encoding := t.settings.encoding; encoding != nil && encoding.UnmarshalJSON != nil {
		var event any
		err := guardData(t.goType, func() (err error) {
			event, err = encoding.UnmarshalJSON(data)
			return err
		})
		return event, err
	}
	v := reflect.New(t.goType)
	if err := unmarshalData(data, v.Interface(), t.goType); err != nil {
		return nil, err
	}
	return v.Elem().Interface(), nil
}

// DataAs decodes the data of a message into an E. Unknown members are ignored, so
// that producers can add some; names match in any case, but no two may be for one
// field. The error is a *[DecodeError].
func DataAs[E any](data json.RawMessage) (E, error) {
	var v E
	err := unmarshalData(data, &v, reflect.TypeFor[E]())
	return v, err
}

func unmarshalData(data []byte, into any, t reflect.Type) error {
	return guardData(t, func() error {
		if len(data) == 0 {
			return errors.New("there is no data")
		}
		if isNull(data) { // which would leave the value as it is
			return errors.New("the data is null")
		}
		return strictjson.UnmarshalLoose(data, into) //nolint:wrapcheck // guardData wraps it
	})
}

// guardData says of an error what was decoded, and turns a panic in a UnmarshalJSON of the user's into one: one
// message must not end a consumer.
func guardData(t reflect.Type, unmarshal func() error) (err error) {
	returned := false
	defer func() {
		if r := recover(); !returned { // r is nil with GODEBUG=panicnil=1
			err = &panicError{r}
		}
		if err != nil {
			err = &DecodeError{
				Cause:  fmt.Errorf("its data as %s: %w", goName(t), err),
				Remedy: "compare the type with the producer's, and its version with that in headers.type",
			}
		}
	}()
	err = unmarshal()
	returned = true
	return err
}

// isNull tells whether valid JSON is null.
func isNull(raw []byte) bool { return string(bytes.TrimSpace(raw)) == "null" }
