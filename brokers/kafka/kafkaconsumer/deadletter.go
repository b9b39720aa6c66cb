package kafkaconsumer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// publishTimeout bounds the publishing of one dead letter.
const publishTimeout = 10 * time.Second

// deadLetter writes a message to the topic of dead letters: as it was, with its key, so that those of
// one key stay in order, and with headers that say what is known of its end. What the topic finds too
// large, as it may where the message was compressed better, is written without these, and then without
// the payload: waiting would change nothing.
func (r *run) deadLetter(ctx context.Context, e *consumer.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	from := e.First().(*claim).record //nolint:forcetypeassert // the only kind there is
	topic := r.config.DeadLetters(from.Topic)
	headers := slices.Clone(from.Headers)
	for _, added := range consumer.DeadLetterAttributes(e, from.Topic) {
		headers = slices.DeleteFunc(headers, func(h kgo.RecordHeader) bool { return h.Key == added.Name })
		headers = append(headers, kgo.RecordHeader{Key: added.Name, Value: []byte(added.Value)})
	}
	err := r.letters.produce(ctx, &kgo.Record{Topic: topic, Key: from.Key, Value: from.Value, Headers: headers})
	if tooLarge(err) {
		err = r.letters.produce(ctx, &kgo.Record{Topic: topic, Key: from.Key, Value: from.Value, Headers: from.Headers})
	}
	without := tooLarge(err)
	if without {
		err = r.letters.produce(ctx, stub(topic, from, consumer.DeadLetterAttributes(e, from.Topic)))
	}
	if err != nil {
		return fmt.Errorf("produce to %q: %w", topic, err)
	}
	if without {
		r.log.ErrorContext(ctx, "dead letter without its payload", "topic", topic, "source", from.Topic, "position", e.Message.Position, "bytes", sizeOf(from))
	}
	return nil
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// maxStubKey bounds the key of a dead letter without its payload: it may be what is too large.
const maxStubKey = 1024

// stub is a dead letter without its payload. Its value is empty, and not null: where the topic is
// compacted it deletes nothing.
func stub(topic string, from *kgo.Record, attributes []consumer.Attribute) *kgo.Record {
	record := &kgo.Record{Topic: topic, Value: []byte{}}
	if len(from.Key) <= maxStubKey {
		record.Key = from.Key
	}
	for _, a := range append(attributes,
		consumer.Attribute{Name: inbox.FieldDeadLetterBytes, Value: strconv.Itoa(len(from.Value))},
		consumer.Attribute{Name: inbox.FieldDeadLetterDigest, Value: fmt.Sprintf("sha256:%x", sha256.Sum256(from.Value))}) {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: a.Name, Value: []byte(a.Value)})
	}
	return record
}

// letters is the producer of dead letters, which is made when there is one. It is a client of its own,
// since a client keeps to the id of a topic that was deleted and made anew, and must be changed then.
type letters struct {
	options []kgo.Opt

	mu     sync.Mutex
	client *kgo.Client
	closed bool
}

func (l *letters) produce(ctx context.Context, record *kgo.Record) error {
	client, err := l.open()
	if err != nil {
		return err
	}
	err = client.ProduceSync(ctx, record).FirstErr()
	if errors.Is(err, kerr.UnknownTopicID) {
		l.discard(client)
	}
	return err
}

func (l *letters) open() (client *kgo.Client, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, kgo.ErrClientClosed
	}
	if l.client == nil {
		l.client, err = kgo.NewClient(l.options...)
	}
	return l.client, wrapped(err)
}

// discard closes a client, unless another one has taken its place. What others write with it fails, and
// is tried again.
func (l *letters) discard(client *kgo.Client) {
	l.mu.Lock()
	mine := l.client == client
	if mine {
		l.client = nil
	}
	l.mu.Unlock()
	if mine && client != nil {
		client.Close()
	}
}

// close ends the producer, and what is written with it.
func (l *letters) close() {
	l.mu.Lock()
	l.closed = true
	client := l.client
	l.mu.Unlock()
	l.discard(client)
}
