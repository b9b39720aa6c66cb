package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// publishTimeout bounds the publishing of one dead letter.
const publishTimeout = 10 * time.Second

// deadLetter writes a message to the topic of dead letters: as it was, with its key, so that those of
// one key stay in order, and with headers that say what is known of its end.
func (r *run) deadLetter(ctx context.Context, e *session.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	from := e.First().(*claim).record //nolint:forcetypeassert // the only kind there is
	topic := r.options.letters(from.Topic)
	headers := slices.Clone(from.Headers)
	for _, added := range session.DeadLetterAttributes(e, from.Topic) {
		headers = slices.DeleteFunc(headers, func(h kgo.RecordHeader) bool { return h.Key == added.Name })
		headers = append(headers, kgo.RecordHeader{Key: added.Name, Value: []byte(added.Value)})
	}
	err := r.kafka.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: from.Key, Value: from.Value, Headers: headers}).FirstErr()
	if errors.Is(err, kerr.MessageTooLarge) {
		// The message was as large as the topic allows: without anything added it still is.
		err = r.kafka.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: from.Key, Value: from.Value, Headers: from.Headers}).FirstErr()
	}
	if errors.Is(err, kerr.UnknownTopicID) {
		r.end(&anewError{topic})
	}
	if err != nil {
		return fmt.Errorf("produce to %q: %w", topic, err)
	}
	return nil
}
