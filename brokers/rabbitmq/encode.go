package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/brokers"
)

// Limits of AMQP 0-9-1 (https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf, 4.2) and of RabbitMQ.
const (
	maxShort        = 255       // bytes of a short string
	maxName         = 128       // bytes of the name of a header
	maxMessageBytes = 512 << 20 // what max_message_size can be at most
	// maxExpiration is the longest expiration that RabbitMQ takes (check_expiry in
	// rabbit_misc.erl). For a longer one it closes the channel, at the cost of all messages that
	// are in flight on it.
	maxExpiration = 10 * 365 * 24 * time.Hour

	// Properties, with all headers, travel in one frame; a server closes the connection of a client
	// that sends a larger one. This is the size of a frame where the server names none.
	defaultFrame  = 128 << 10
	frameOverhead = 8 // type, channel, size, end

	// fixedProperties is what they have in bytes beside texts: class, weight, size of the body, flags,
	// size of the headers, delivery mode, priority, and the lengths of five short strings.
	fixedProperties = 2 + 2 + 8 + 2 + 4 + 1 + 1 + 5
	headerOverhead  = 1 + 1 + 4 // length of the name, type, length of the value
)

// routes are headers with which a sender names further queues; as texts RabbitMQ refuses them, at the
// cost of the channel.
var routes = map[string]bool{"CC": true, "BCC": true}

// encode makes the AMQP message of m, for a connection with frames of so many bytes, or says why there
// is none. What is optional and does not fit is left out, and named.
func (b *Broker) encode(m *brokers.Message, key string, frame int) (out amqp.Publishing, omitted []string, err error) {
	if err := b.check(m, key); err != nil {
		return amqp.Publishing{}, nil, err
	}
	out = amqp.Publishing{
		MessageId: m.ID, Type: m.Type, ContentType: cmp.Or(m.ContentType, brokers.DefaultContentType),
		DeliveryMode: amqp.Persistent, Priority: priority(m.Priority), Expiration: expiration(m.ExpiresIn, b.options.expiration), Body: m.Payload,
	}
	if len(m.CorrelationID) <= maxShort {
		out.CorrelationId = m.CorrelationID
	} else {
		omitted = append(omitted, brokers.FieldCorrelationID)
	}
	room := cmp.Or(frame, defaultFrame) - frameOverhead - fixedProperties -
		len(out.MessageId) - len(out.Type) - len(out.ContentType) - len(out.Expiration) - len(out.CorrelationId)
	if m.OrderingKey == "" && len(m.Attributes) == 0 {
		return out, omitted, nil
	}
	out.Headers = make(amqp.Table, 1+len(m.Attributes))
	add := func(name, value string) bool {
		size := headerOverhead + len(name) + len(value)
		if _, twice := out.Headers[name]; twice || size > room || name == "" || len(name) > maxName || routes[name] {
			return false
		}
		room -= size
		out.Headers[name] = value
		return true
	}
	if m.OrderingKey != "" && !add(brokers.FieldOrderingKey, m.OrderingKey) {
		return amqp.Publishing{}, nil, fmt.Errorf("the ordering key has %d bytes, a frame of this connection (frame_max) has %d",
			len(m.OrderingKey), frame)
	}
	for _, a := range m.Attributes {
		if !add(a.Name, a.Value) {
			omitted = append(omitted, a.Name)
		}
	}
	return out, omitted, nil
}

// check says why a message can never be sent, nil = it can.
func (b *Broker) check(m *brokers.Message, key string) error {
	if m.Destination == "" {
		return errors.New("the destination is empty")
	}
	if limit := b.limit.Load(); int64(len(m.Payload)) > limit {
		return fmt.Errorf("the payload has %d bytes, at most %d are allowed (max_message_size of the server; max_message_bytes)",
			len(m.Payload), limit)
	}
	for _, short := range []struct{ name, value string }{
		{"routing key", key}, {"id", m.ID}, {"type", m.Type}, {"content type", m.ContentType},
	} {
		if len(short.value) > maxShort {
			return fmt.Errorf("the %s %.40q... has %d bytes, AMQP takes %d", short.name, short.value, len(short.value), maxShort)
		}
	}
	return nil
}

// priority maps -100 to 100 onto the 0 to 9 of AMQP: 0 becomes 4, which AMQP takes for normal.
func priority(p int) uint8 {
	const least, most, steps = -100, 100, 9
	return uint8((min(max(p, least), most) - least) * steps / (most - least))
}

// expiration is the shorter one of two limits, 0 = there is none, in whole milliseconds as AMQP has
// it. What is above RabbitMQ's own limit is left out: a shorter one would drop the message before
// its time.
func expiration(left, most time.Duration) string {
	d := left
	if most > 0 && (d == 0 || most < d) {
		d = most
	}
	if d == 0 || d.Milliseconds() > maxExpiration.Milliseconds() {
		return ""
	}
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}
