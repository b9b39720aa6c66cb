package watermill

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/gorm-fanout/fanout/brokers"
)

// encode makes a message of Watermill. It is independent of m: a publisher may change it, and may still hold it when Publish has
// returned.
func (o *options) encode(ctx context.Context, m *brokers.Message) *message.Message {
	encoded := message.NewMessageWithContext(ctx, m.ID, bytes.Clone(m.Payload))
	own := m.OrderingKey != ""
	for name, value := range m.Fields {
		if own && name == brokers.FieldOrderingKey { // it goes by the name that it was given here
			own = false
			continue
		}
		encoded.Metadata.Set(name, value)
	}
	if o.keyName != "" && m.OrderingKey != "" {
		encoded.Metadata.Set(o.keyName, m.OrderingKey)
	}
	return encoded
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
