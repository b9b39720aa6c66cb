package protobuf

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/gorm-fanout/fanout/envelope"
)

// Register adds a generated message to the catalog as an event type; M is its pointer, such as *shop.OrderPlaced, and that
// is what the domain raises. The message is encoded when it is raised: what becomes of it afterwards changes nothing. The
// event's name is that of the Go type unless the option [envelope.Name] gives another.
//
// Problems do not panic: they wait for [envelope.Catalog.Err]. A message that is nil or lacks required fields, texts that
// are not valid UTF-8, and an Any of a type that the program does not link fail the transaction; the error names the event
// and the line of the Raise. The tag `fanout:"id"` is for Go types: raise a message when its id is known.
func Register[M proto.Message](events *envelope.Catalog, opts ...envelope.Option) {
	envelope.Register[M](events, append(slices.Clone(opts), encodingOf[M]())...)
}

// As is [envelope.As] with a Protobuf message for partners. The options, [envelope.Name], [envelope.Version] and
// [envelope.To], are those of the contract; the name is the event's unless one is given.
func As[E any, M proto.Message](to func(E) M, opts ...envelope.Option) envelope.Contract {
	return envelope.As(to, append(slices.Clone(opts), encodingOf[M]())...)
}

// mediaType of messages; the parameter proto has the full name of the message, as Prometheus uses it.
const mediaType = "application/protobuf"

const parameterName = "proto"

func encodingOf[M proto.Message]() envelope.Encoding {
	d, err := descriptorOf[M]()
	if err != nil { // an interface, which Register and As of package envelope refuse, or no generated message
		return envelope.Encoding{Marshal: marshal, MarshalJSON: marshalJSON}
	}
	return envelope.Encoding{
		ContentType:   mediaType + "; " + parameterName + "=" + string(d.FullName()),
		Marshal:       marshal,
		MarshalJSON:   marshalJSON,
		UnmarshalJSON: func(data []byte) (any, error) { return unmarshalJSON[M](data) },
		Describe:      func() ([]byte, error) { return describe(d) },
	}
}

var errNotGenerated = errors.New("it is no generated message: give the pointer to one, such as *shop.OrderPlaced")

// descriptorOf is that of a generated message, which its nil pointer knows.
func descriptorOf[M proto.Message]() (d protoreflect.MessageDescriptor, err error) {
	defer func() {
		if recover() != nil { // of a dynamic message
			d, err = nil, errNotGenerated
		}
	}()
	var none M
	if reflect.TypeFor[M]().Kind() != reflect.Pointer {
		return nil, errNotGenerated
	}
	return none.ProtoReflect().Descriptor(), nil
}

// valid returns the message that an event is.
func valid(event any) (proto.Message, error) {
	m, ok := event.(proto.Message)
	if !ok || !m.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("protobuf: the message, a %T, is nil: raise one, an empty one at least", event)
	}
	return m, nil
}

func marshal(event any) ([]byte, error) {
	m, err := valid(event)
	if err != nil {
		return nil, err
	}
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("protobuf: marshal %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return bytes, nil
}

// marshalJSON leaves it to package envelope to remove the white space, at random places.
func marshalJSON(event any) ([]byte, error) {
	m, err := valid(event)
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("protobuf: marshal %s as JSON: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return text, nil
}
