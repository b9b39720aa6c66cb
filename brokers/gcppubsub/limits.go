package gcppubsub

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/gorm-fanout/fanout/brokers"
)

// Limits of Pub/Sub (https://cloud.google.com/pubsub/quotas#resource_limits). What is above them is permanent, and refused before it is
// sent.
const (
	// MaxMessageBytes is the largest message, with its attributes, its ordering key and the name of the topic.
	MaxMessageBytes = 10_000_000
	// MaxAttributes counts the flat fields (id, type ...) too.
	MaxAttributes       = 100
	MaxNameBytes        = 256 // of an attribute
	MaxValueBytes       = 1024
	MaxOrderingKeyBytes = 1024

	maxRequestBytes = int(pubsub.MaxPublishRequestBytes)
)

// encode makes the Pub/Sub message of m, or says which limit it breaks.
func encode(topic string, m *brokers.Message) (*pubsubpb.PubsubMessage, error) {
	attributes := make(map[string]string, 4+len(m.Attributes))
	var err error
	m.Fields(func(name, value string) bool {
		if name == brokers.FieldOrderingKey {
			return true // Pub/Sub has one of its own
		}
		attributes[name] = value
		err = checkAttribute(name, value)
		return err == nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(attributes) > MaxAttributes:
		return nil, fmt.Errorf("the message has %d attributes with its flat fields, Pub/Sub takes %d", len(attributes), MaxAttributes)
	case len(m.OrderingKey) > MaxOrderingKeyBytes:
		return nil, fmt.Errorf("the ordering key has %d bytes, Pub/Sub takes %d", len(m.OrderingKey), MaxOrderingKeyBytes)
	case !utf8.ValidString(m.OrderingKey):
		return nil, fmt.Errorf("the ordering key %q is not valid UTF-8", m.OrderingKey)
	}
	message := &pubsubpb.PubsubMessage{Data: m.Payload, Attributes: attributes, OrderingKey: m.OrderingKey}
	if size := requestSize(topic) + entrySize(message); size > MaxMessageBytes {
		return nil, fmt.Errorf("the message has %d bytes with its attributes (the payload %d), Pub/Sub takes %d",
			size, len(m.Payload), MaxMessageBytes)
	}
	return message, nil
}

func checkAttribute(name, value string) error {
	switch {
	case name == "":
		return errors.New("an attribute has no name")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("the name of the attribute %.40q... has %d bytes, Pub/Sub takes %d", name, len(name), MaxNameBytes)
	case len(value) > MaxValueBytes:
		return fmt.Errorf("the value of the attribute %q has %d bytes, Pub/Sub takes %d", name, len(value), MaxValueBytes)
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
