package protobuf

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/inbox"
)

// On is [inbox.On] for events that are Protobuf messages; M is the pointer of a generated message, such as *shop.OrderPlaced.
// It takes the event in whichever form it comes, see [Decode]: so a producer can go from JSON to Protobuf, and back, without
// a change here.
func On[M proto.Message](handlers *inbox.Handlers, wireType string, f func(tx *gorm.DB, event M, m *inbox.Message) error) {
	inbox.DecodeAs(handlers, Decode[M])
	inbox.On(handlers, wireType, f)
}

// Decode makes an M of a message: of a payload that is a Protobuf message alone, of the binary data of a CloudEvent, or of
// the JSON mapping of Protobuf (package protojson) as the data of any form with JSON. A content type that names another
// message is an error. Fields that the program does not know are kept of binary data, and left out of JSON. It never
// needs more memory than the payload gives reason for, and takes 10,000 messages within each other.
//
// [On] uses it. It is there for handlers that are none of [inbox.Handlers], with [inbox.Decode] before it where there is
// no inbox, and for upcasts: inbox.DecodeAs(handlers, protobuf.Decode[*shop.OrderPlacedV1]).
func Decode[M proto.Message](m *inbox.Message) (M, error) {
	var none M
	d, err := descriptorOf[M]()
	if err != nil {
		return none, fmt.Errorf("protobuf: decode %T: %w", none, err)
	}
	event := empty[M]()
	data, contentType, isJSON, err := dataOf(m)
	switch {
	case err != nil:
	case isJSON:
		event, err = unmarshalJSON[M](data)
	default:
		if name := messageName(contentType); name != "" && name != string(d.FullName()) {
			err = fmt.Errorf("the message is a %.200q", name)
			break
		}
		err = proto.Unmarshal(data, event)
	}
	if err != nil {
		return none, fmt.Errorf("protobuf: decode %s, of %d bytes, as %s: %w: compare the .proto file with the producer's, and its version with that in the type",
			m.Type, len(data), d.FullName(), err)
	}
	return event, nil
}

// empty makes a generated message.
func empty[M proto.Message]() M {
	var none M
	return none.ProtoReflect().Type().New().Interface().(M) //nolint:forcetypeassert // it is made by M's own type
}

func unmarshalJSON[M proto.Message](data []byte) (M, error) {
	event := empty[M]()
	return event, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, event) //nolint:wrapcheck // callers say what they decode
}

// dataOf finds the data in a message.
func dataOf(m *inbox.Message) (data []byte, contentType string, isJSON bool, err error) {
	if m.Envelope == nil {
		return nil, "", false, errors.New("it could not be read")
	}
	event := m.CloudEvent
	if event == nil {
		if m.Envelope.Data != nil {
			return m.Envelope.Data, "", true, nil
		}
		contentType = cmp.Or(m.Attributes["content-type"], m.Attributes["Content-Type"])
		return m.Payload, contentType, false, checkMedia(contentType)
	}
	contentType = event.DataContentType
	switch {
	case event.Data != nil && (event.Binary == nil || !isProtobuf(contentType)): // bytes can look like JSON
		return event.Data, contentType, true, nil
	case event.Binary == nil && contentType == "":
		return nil, "", false, errors.New("there is no data")
	case contentType == "":
		return event.Binary, "", false, nil
	}
	return event.Binary, contentType, false, checkMedia(contentType) // a message without a value has no bytes
}

// mediaTypes are the names in use.
var mediaTypes = []string{mediaType, "application/x-protobuf", "application/vnd.google.protobuf"}

func isProtobuf(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)) && slices.Contains(mediaTypes, media)
}

func checkMedia(contentType string) error {
	if !isProtobuf(contentType) {
		return fmt.Errorf("the content type is %.100q, not one of Protobuf or JSON", contentType)
	}
	return nil
}

// messageName is the full name that a content type gives the message, if it does.
func messageName(contentType string) string {
	_, parameters, _ := mime.ParseMediaType(contentType)
	return cmp.Or(parameters[parameterName], parameters["messagetype"])
}
