package inbox

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/limits"
)

// A RawMessage is a delivery as its broker has handed it out, before it is read. It must not be
// changed: its payload and attributes are those of the [Message].
type RawMessage struct {
	// Payload is nil for a tombstone of Kafka, and for what has been no payload at all.
	Payload []byte
	// Attributes are the flat fields, headers or properties beside it.
	Attributes map[string]string
	// OrderingKey is the broker's own: the key of Kafka's record, the ordering key of Pub/Sub; else
	// the attribute [FieldOrderingKey]. Where it is not empty, it is that of the [Message].
	OrderingKey string
	// Source, Position and Published are as in [Message]. The position stays the same when the
	// message comes again, except on RabbitMQ, which has none that would. A [Redeliver] has all of
	// them from the table; the position of a dead letter that was made without one is its key.
	Source, Position string
	Published        time.Time
}

// A Decoder makes an event of a message that another program has written in a form of its own. What
// it answers decides:
//
//   - An event is handled by its type as any other. It needs an ID, which copies of the message have in
//     common (a position of the producer's log, say), and a Type; Source is that of the message where it
//     is empty, Time when the broker got it. PartitionKey is its ordering key where the broker has none
//     for the message: its own goes first, as what is behind it in that waits for the decoder.
//   - nil and no error leaves the message to [Decode].
//   - [ErrSkip] skips it: it is confirmed and counted, and not logged.
//   - An error that is marked by [Unavailable], as where a registry of schemas is out, has it asked again
//     after a pause, for as long as it takes; the broker's ordering key waits, and remains the
//     message's. Any other error makes the message unreadable, and so does a panic: see
//     [Unreadable].
//
// It is asked about every message, those of Fanout included, by the consumer's workers, several at once,
// when it is the message's turn in its ordering key. The key of messages without one of the broker's is
// known only then: these are read one after the other, in the order of their arrival, so that the order of
// PartitionKey is kept, and the decoder should be quick. It must always answer the same for the same
// message. A worker waits for its answer up to a second, a tenth of one at least where many others have
// not come; then the message waits, as if the answer were [Unavailable], until there is one. A decoder
// that never returns has its message wait forever, with a warning once a minute: give what it calls
// a timeout. One that kills the process is a handler that does. [Redeliver] itself waits for it.
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
		m, err := Decode(raw.Payload, raw.Attributes)
		if err != nil {
			return nil, err
		}
		m.OrderingKey = cmp.Or(raw.OrderingKey, m.OrderingKey)
		return m, nil
	}
	read := *event // the decoder may keep its own
	read.Source = cmp.Or(read.Source, raw.Source)
	if read.Time.IsZero() {
		read.Time = raw.Published
	}
	if string(bytes.TrimSpace(read.Data)) == "null" { // as a field of the message that is null: there is none
		read.Data = nil
	}
	if err := checkEvent(&read); err != nil {
		return nil, err
	}
	m := fromCloudEvent(&read, nil, raw.Payload, raw.Attributes)
	m.OrderingKey = cmp.Or(raw.OrderingKey, event.PartitionKey)
	return m, nil
}

// ask makes an error of a panic.
func (d Decoder) ask(raw *RawMessage) (event *envelope.CloudEvent, err error) {
	if d == nil {
		return nil, nil //nolint:nilnil // it is not asked
	}
	returned := false
	defer func() {
		if value := recover(); !returned { // value is nil with GODEBUG=panicnil=1
			event, err = nil, fmt.Errorf("inbox: the decoder panicked: %v", value)
		}
	}()
	event, err = d(raw)
	returned = true
	return event, sound(err)
}

// checkEvent checks what a decoder has made.
func checkEvent(e *envelope.CloudEvent) error {
	for _, text := range []struct {
		name, value string
		most        int
		required    bool
	}{
		{"ID", e.ID, limits.MaxContextBytes, true},
		{"Type", e.Type, limits.MaxTypeBytes, true},
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
		return errors.New("inbox: the decoder's event has data that is not JSON, or has a member twice: marshal it with encoding/json, or set Binary")
	}
	return nil
}

// unread is the namespace of the keys of messages that cannot be read: whatever a sender calls an
// event, its key is in another one.
var unread = uuid.MustParse("9a5b6d0e-3c1f-4e0a-8f57-6e2f1f3b9c42")

// UnreadableKey is the key under which a message that cannot be read is kept: made of its source, of
// what the broker knows it by (id), and of all that it holds, so that it is never that of a message
// that can be read, nor of another one at its place in a topic that was made anew.
func UnreadableKey(raw *RawMessage, id string) uuid.UUID {
	parts := []string{raw.Source, id, string(raw.Payload), raw.OrderingKey, raw.Published.UTC().Format(time.RFC3339Nano)}
	for _, name := range slices.Sorted(maps.Keys(raw.Attributes)) {
		parts = append(parts, name, raw.Attributes[name])
	}
	digest := sha256.New()
	for _, part := range parts { // with their lengths, so that no two messages are one text
		_, _ = fmt.Fprintf(digest, "%d:%s", len(part), part)
	}
	return uuid.NewHash(sha256.New(), unread, digest.Sum(nil), keyVersion)
}
