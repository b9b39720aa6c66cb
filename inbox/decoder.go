package inbox

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/envelope"
)

// A RawMessage is a delivery as its broker has handed it out, before it is read. It must not be
// changed: its payload and attributes are those of the [Message].
type RawMessage struct {
	// Payload is nil for a tombstone of Kafka, and for what has been no payload at all.
	Payload []byte
	// Attributes are the flat fields, headers or properties beside it.
	Attributes map[string]string
	// OrderingKey is the broker's own: the key of Kafka's record, the ordering key of Pub/Sub; else
	// the attribute [FieldOrderingKey].
	OrderingKey string
	// Source, Position and Published are as in [Message]. The position stays the same when the
	// message comes again, except on RabbitMQ, which has none that would. In a [Redeliver] it is
	// the key of the dead letter.
	Source, Position string
	Published        time.Time
}

// A Decoder makes an event of a message that another program has written in a form of its own. What
// it answers decides:
//
//   - An event is handled by its type as any other. It needs an ID, which copies of the message have in
//     common (a position of the producer's log, say), and a Type; Source is that of the message where it
//     is empty, Time when the broker got it. PartitionKey is its ordering key; where that is empty, the
//     broker's own. Pub/Sub's ordering key goes before both.
//   - nil and no error leaves the message to [Decode].
//   - [ErrSkip] skips it: it is confirmed and counted, and not logged.
//   - An error that is marked by [Unavailable], as where a registry of schemas is out, has it asked again
//     after a pause, for as long as it takes; the broker's ordering key waits, and remains the
//     message's. Any other error makes the message unreadable, and so does a panic: see
//     [Unreadable].
//
// It is asked about every message, those of Fanout included, as they arrive, one after the other:
// it should be quick. Several goroutines may call it. It must always answer the same for the same
// message.
type Decoder func(raw *RawMessage) (*envelope.CloudEvent, error)

// ErrSkip is the answer of a [Decoder] to a message that the consumer has no use for.
var ErrSkip = errors.New("inbox: the decoder skips the message")

// Decode asks the decoder, which may be nil, and then [Decode]. Consumer, deliveries and what else
// comes from the transport is not set. The error is [ErrSkip], marked by [Unavailable], or says why
// the message cannot be read.
func (d Decoder) Decode(raw *RawMessage) (*Message, error) {
	event, err := d.ask(raw)
	if err != nil {
		return nil, err
	}
	if event == nil {
		return Decode(raw.Payload, raw.Attributes)
	}
	read := *event // the decoder may keep its own
	read.Source = cmp.Or(read.Source, raw.Source)
	if read.Time.IsZero() {
		read.Time = raw.Published
	}
	if err := checkEvent(&read); err != nil {
		return nil, err
	}
	m := fromCloudEvent(&read, nil, raw.Payload, raw.Attributes)
	m.OrderingKey = cmp.Or(event.PartitionKey, raw.OrderingKey)
	return m, nil
}

// ask makes an error of a panic.
func (d Decoder) ask(raw *RawMessage) (event *envelope.CloudEvent, err error) {
	if d == nil {
		return nil, nil //nolint:nilnil // it is not asked
	}
	defer func() {
		if value := recover(); value != nil {
			event, err = nil, fmt.Errorf("inbox: the decoder panicked: %v", value)
		}
	}()
	return d(raw)
}

// checkEvent checks what a decoder has made.
func checkEvent(e *envelope.CloudEvent) error {
	for _, text := range []struct {
		name, value string
		most        int
		required    bool
	}{
		{"ID", e.ID, envelope.MaxContextBytes, true},
		{"Type", e.Type, envelope.MaxTypeBytes, true},
		{"PartitionKey", e.PartitionKey, envelope.MaxOrderingKeyBytes, false},
	} {
		switch {
		case text.required && text.value == "":
			return fmt.Errorf("inbox: the decoder's event has no %s: set it", text.name)
		case len(text.value) > text.most:
			return fmt.Errorf("inbox: the decoder's event has a %s of %d bytes, the most is %d: shorten it, by a digest of it for one", text.name, len(text.value), text.most)
		case !utf8.ValidString(text.value):
			return fmt.Errorf("inbox: the decoder's event has a %s that is not valid UTF-8: encode it", text.name)
		}
	}
	if e.Data != nil && !envelope.IsData(e.Data) {
		return errors.New("inbox: the decoder's event has data that is not JSON, is null, or has a member twice: marshal it with encoding/json, or set Binary")
	}
	return nil
}

// UnreadableKey is the key under which a message that cannot be read is kept: made of its source, of
// what the broker knows it by, and of its payload, so that it is never that of a message that can be.
func UnreadableKey(source, id string, payload []byte) uuid.UUID {
	digest := sha256.Sum256(payload)
	return uuid.NewHash(sha256.New(), foreign, fmt.Appendf(nil, "unreadable\x00%s\x00%s\x00%x", source, id, digest), keyVersion)
}
