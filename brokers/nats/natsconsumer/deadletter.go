package natsconsumer

import (
	"context"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

const (
	// publishTimeout bounds the publishing of one dead letter.
	publishTimeout = 10 * time.Second
	// addedBytes is more than what the headers of a dead letter take that it has not had before.
	addedBytes = 8 << 10
	// maxHeaders is what a stream takes of headers.
	maxHeaders = 64 << 10
)

// deadLetter publishes a message to the subject of dead letters, as it was, with what is known of its
// end. The message id of the server is made of stream and sequence, so a repetition within its
// deduplication window is stored once.
func (r *run) deadLetter(ctx context.Context, e *consumer.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	from := e.First().(*delivery).message //nolint:forcetypeassert // the only kind there is
	out := &nats.Msg{Subject: r.letters, Data: from.Data(), Header: nats.Header{}}
	size := len(from.Data())
	headers := 0
	for name, values := range from.Headers() {
		if instruction(name) {
			continue
		}
		out.Header[name] = slices.Clone(values)
		for _, value := range values {
			headers += len(name) + len(value) + len(": \r\n")
		}
	}
	if headers+addedBytes <= maxHeaders && int64(size+headers+addedBytes) <= r.conn.MaxPayload() {
		for _, added := range consumer.DeadLetterAttributes(e, r.stream) {
			out.Header.Set(added.Name, line(added.Value))
		}
	}
	id := fmt.Sprintf("dead %s %s %s", r.config.Consumer, r.stream, e.ID)
	if _, err := r.js.PublishMsg(ctx, out, jetstream.WithMsgID(id)); err != nil {
		return fmt.Errorf("publish to %q: %w", r.letters, err)
	}
	return nil
}

// instruction reports whether a header tells the server what to do.
func instruction(name string) bool {
	return strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Nats-")
}

// line is a text without line ends, which headers do not take.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }
