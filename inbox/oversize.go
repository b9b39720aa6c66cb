package inbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"strconv"
)

// The bounds of what the table keeps of a dead letter, in bytes of its payload and attributes.
const (
	// DefaultMaxDeadLetterBytes is that of [WithMaxDeadLetterBytes]: what RabbitMQ 4 takes in a
	// message, and more than Kafka, NATS and Pub/Sub do by default. Databases take more, but
	// [Redeliver] has fifty in memory at a time, and a write has five seconds.
	DefaultMaxDeadLetterBytes = 16 << 20
	// MaxDeadLetterBytes is the most that can be set: PostgreSQL takes 1 GB in a value, and some of
	// its clients write two digits for each byte.
	MaxDeadLetterBytes = 256 << 20
)

const (
	// unprobed is what each MySQL takes: no version has a default of max_allowed_packet below 1 MB.
	unprobed = 128 << 10
	// otherValues is for what else is in the statement, the error above all.
	otherValues = 64 << 10
	// maxAttributesText is half of what MySQL takes in a column of attributes (MEDIUMTEXT).
	maxAttributesText = 8 << 20
	// maxSmallAttributes are kept although the payload is not.
	maxSmallAttributes = 16 << 10
)

// WithMaxDeadLetterBytes bounds the payload and the attributes, as JSON, that the table keeps of a
// dead letter, in bytes: at most [MaxDeadLetterBytes], default [DefaultMaxDeadLetterBytes]. On MySQL
// and MariaDB a quarter of max_allowed_packet bounds them, too. A message that is larger becomes a
// dead letter without its payload: it has its type and error, its attributes where they are at most
// 16 KiB, and [FieldDeadLetterBytes], [FieldDeadLetterDigest] and [FieldDeadLetterPosition] among them.
// [Redeliver] leaves it alone: redrive it first, and then send the message again.
func WithMaxDeadLetterBytes(n int) Option {
	return func(s *settings) { s.maxDeadLetter = n }
}

// content is what the table keeps of a message.
type content struct {
	payload    []byte
	attributes string
	// omitted says that the payload is not kept; empty where it is.
	omitted string
}

// content returns what fits.
func (h *handling) content(ctx context.Context, on conn) (content, error) {
	m := h.message
	small, most := len(m.BrokerKey), h.maxDeadLetter
	for name, value := range m.Attributes {
		small += len(name) + len(value)
	}
	size := len(m.Payload) + small
	if h.sql.dialect == mySQL && size > unprobed/6 { // JSON can write six bytes for one
		// The statement has each value twice, and a driver that writes it as text escapes bytes.
		var packet int
		if _, err := queryOne(ctx, on, h.sql.packet, nil, &packet); err != nil {
			return content{}, fmt.Errorf("ask for max_allowed_packet: %w", err)
		}
		most = min(most, packet/4-otherValues)
	}
	if size <= most {
		text, err := storedAttributes(m, h.source)
		if err != nil || len(text) <= maxAttributesText && len(m.Payload)+len(text) <= most {
			return content{payload: m.Payload, attributes: text}, err
		}
	}
	stub, attributes := *m, map[string]string{}
	if small <= maxSmallAttributes {
		maps.Copy(attributes, m.Attributes)
	} else {
		stub.BrokerKey = ""
	}
	stub.Attributes = attributes
	attributes[FieldDeadLetterBytes] = strconv.Itoa(len(m.Payload))
	attributes[FieldDeadLetterDigest] = fmt.Sprintf("sha256:%x", sha256.Sum256(m.Payload))
	attributes[FieldDeadLetterPosition] = cut(m.Position, maxText)
	text, err := storedAttributes(&stub, h.source)
	return content{attributes: text, omitted: fmt.Sprintf("inbox: a dead letter without its payload, as its %d bytes are more than is kept: "+
		"redrive it first, and then send the message again; to keep such ones raise WithMaxDeadLetterBytes, on MySQL and MariaDB "+
		"also max_allowed_packet, of which a quarter is kept", size)}, err
}

// why is why a message becomes a dead letter, and that its payload is not kept.
func (h *handling) why(err error) error {
	if h.omitted == "" {
		return err
	}
	return fmt.Errorf("%s: %w", h.omitted, err)
}

// isOmitted reports that the content of a dead letter was not kept: without it, it is another message.
func (d *DeadLetter) isOmitted() bool {
	return d.Attributes[FieldDeadLetterBytes] != "" && len(d.Payload) == 0
}
