package gcppubsub

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/gorm-fanout/fanout/brokers"
)

// Limits of Pub/Sub (https://cloud.google.com/pubsub/quotas#resource_limits). Attributes above them
// are left out, in the order of [brokers.Message.Fields]; for the rest, what is above them is
// permanent, and refused before it is sent.
const (
	// MaxMessageBytes is the largest message, with its attributes, its ordering key and the name of
	// the topic.
	MaxMessageBytes = 10_000_000
	// maxAttributes counts the flat fields (id, type ...) too.
	maxAttributes       = 100
	maxNameBytes        = 256 // of an attribute
	maxValueBytes       = 1024
	maxOrderingKeyBytes = 1024

	maxRequestBytes = int(pubsub.MaxPublishRequestBytes)
)

// encode makes the Pub/Sub message of m, or says which limit it breaks. Attributes that break one
// are left out, and named.
func encode(topic string, m *brokers.Message) (message *pubsubpb.PubsubMessage, omitted []string, err error) {
	attributes, omitted, err := attributesOf(m)
	switch {
	case err != nil:
		return nil, nil, err
	case len(m.OrderingKey) > maxOrderingKeyBytes:
		return nil, nil, fmt.Errorf("the ordering key has %d bytes, Pub/Sub takes %d", len(m.OrderingKey), maxOrderingKeyBytes)
	case !utf8.ValidString(m.OrderingKey):
		return nil, nil, fmt.Errorf("the ordering key %q is not valid UTF-8", m.OrderingKey)
	}
	message = &pubsubpb.PubsubMessage{Data: m.Payload, Attributes: attributes, OrderingKey: m.OrderingKey}
	if size := requestSize(topic) + entrySize(message); size > MaxMessageBytes {
		// Without what is optional it may fit. A consumer would refuse it without its signature.
		for name := range attributes {
			if !slices.Contains(required, name) && name != brokers.FieldSignature {
				delete(attributes, name)
				omitted = append(omitted, name)
			}
		}
		if requestSize(topic)+entrySize(message) > MaxMessageBytes {
			return nil, nil, fmt.Errorf("the message has %d bytes with its attributes (the payload %d), Pub/Sub takes %d",
				size, len(m.Payload), MaxMessageBytes)
		}
	}
	slices.Sort(omitted)
	return message, omitted, nil
}

// attributesOf are those of a message, as far as Pub/Sub takes them.
func attributesOf(m *brokers.Message) (attributes map[string]string, omitted []string, err error) {
	attributes = make(map[string]string, 4+len(m.Attributes))
	m.Fields(func(name, value string) bool {
		if name == brokers.FieldOrderingKey {
			return true // Pub/Sub has one of its own
		}
		switch flaw := attributeFlaw(name, value); {
		case flaw != nil && slices.Contains(required, name):
			err = flaw
		case flaw != nil || len(attributes) == maxAttributes || name == contentType && attributes[name] != "":
			omitted = append(omitted, name)
		default:
			attributes[name] = value
			if name == brokers.FieldContentType && strings.HasPrefix(value, "application/cloudevents") {
				attributes[contentType] = value
			}
		}
		return err == nil
	})
	return attributes, omitted, err
}

// contentType is where the Pub/Sub binding of CloudEvents' SDK for Go looks for the content type of an event.
// Google's own says content-type:
// https://github.com/googleapis/google-cloudevents/blob/main/docs/spec/pubsub.md
const contentType = "Content-Type"

// required are the flat fields without which a consumer cannot read a message.
var required = []string{brokers.FieldID, brokers.FieldType, brokers.FieldContentType, contentType}

// attributeFlaw says why Pub/Sub would refuse an attribute, and the message with it; nil = it would
// not.
func attributeFlaw(name, value string) error {
	switch {
	case name == "":
		return errors.New("an attribute has no name")
	case len(name) > maxNameBytes:
		return fmt.Errorf("the name of the attribute %.40q... has %d bytes, Pub/Sub takes %d", name, len(name), maxNameBytes)
	case strings.HasPrefix(name, "goog"):
		return fmt.Errorf("the name of the attribute %q begins with goog, which Google keeps for itself", name)
	case len(value) > maxValueBytes:
		return fmt.Errorf("the value of the attribute %q has %d bytes, Pub/Sub takes %d", name, len(value), maxValueBytes)
	case !utf8.ValidString(name) || !utf8.ValidString(value):
		return fmt.Errorf("the attribute %q is not valid UTF-8", name)
	default:
		return nil
	}
}

// requestSize is what a request without messages has in bytes, entrySize what a message adds to it.
func requestSize(topic string) int { return protowire.SizeTag(1) + protowire.SizeBytes(len(topic)) }

func entrySize(m *pubsubpb.PubsubMessage) int {
	return protowire.SizeTag(2) + protowire.SizeBytes(proto.Size(m))
}
