package watermill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/gorm-fanout/fanout/brokers"
)

// required are the flat fields without which a consumer cannot read a message.
var required = []string{brokers.FieldID, brokers.FieldType, brokers.FieldContentType}

// encode makes a message of Watermill, and names what was left out of its metadata. It is
// independent of m: a publisher may change it, and may still hold it when Publish has returned.
func (o *options) encode(ctx context.Context, m *brokers.Message) (encoded *message.Message, omitted []string) {
	encoded = message.NewMessageWithContext(ctx, m.ID, bytes.Clone(m.Payload))
	own := m.OrderingKey != ""
	for name, value := range m.Fields {
		if own && name == brokers.FieldOrderingKey { // it uses the name that it was given here
			own = false
			continue
		}
		if !slices.Contains(required, name) && !o.takes(name, value) {
			omitted = append(omitted, name)
			continue
		}
		encoded.Metadata.Set(name, value)
	}
	if o.keyName != "" && m.OrderingKey != "" {
		encoded.Metadata.Set(o.keyName, m.OrderingKey)
	}
	return encoded, omitted
}

// address finds the topic of a message, or says why it cannot be sent.
func (o *options) address(m *brokers.Message) (topic string, err error) {
	if m.Destination == "" {
		return "", brokers.Permanent(errors.New("watermill: publish: the destination is empty"))
	}
	topic = o.topic(*m)
	switch {
	case topic == "":
		// The message is fine, and so it will be once the configuration is.
		return "", brokers.Unavailable(brokers.ScopeDestination,
			fmt.Errorf("watermill: publish to %q: there is no topic for it: WithTopic has to return one", m.Destination))
	case o.maxBytes > 0 && len(m.Payload) > o.maxBytes:
		return "", brokers.Permanent(fmt.Errorf("watermill: publish to %q: the payload has %d bytes, at most %d are allowed (WithMaxMessageBytes)",
			topic, len(m.Payload), o.maxBytes))
	default:
		return topic, nil
	}
}
