package watermill

import (
	"context"

	"github.com/gorm-fanout/fanout/brokers"
)

// DefaultOrderingKeyMetadata is the name under which the ordering key travels unless
// [WithOrderingKeyMetadata] says otherwise.
const DefaultOrderingKeyMetadata = brokers.FieldOrderingKey

// defaultConcurrency hides a broker's latency of a millisecond or two behind some 10,000 messages
// per second, and is not many goroutines.
const defaultConcurrency = 32

type options struct {
	topic       func(brokers.Message) string
	keyName     string
	takes       func(name, value string) bool
	classify    func(error) error
	ping        func(context.Context) error
	concurrency int
	maxBytes    int
	ordering    bool
}

func defaults() options {
	return options{
		topic:   func(m brokers.Message) string { return m.Destination },
		keyName: DefaultOrderingKeyMetadata, takes: func(string, string) bool { return true }, concurrency: defaultConcurrency, ordering: true,
	}
}

// An Option changes a broker. Options that have no sensible meaning (a negative number, a nil
// function) count as not given.
type Option func(*options)

// WithTopic sets how the topic of a message is found. Default: the destination, unchanged, such as
// "ordering::order". Brokers have rules of their own: Kafka refuses ':', and to NATS '.', '*', '>'
// and blanks mean something.
//
//	watermill.WithTopic(func(m brokers.Message) string { return strings.ReplaceAll(m.Destination, "::", ".") })
//
// A message for which it is "" counts as one whose destination is unavailable. It is called often
// and concurrently, and must not modify the message.
func WithTopic(topic func(brokers.Message) string) Option {
	return func(o *options) {
		if topic != nil {
			o.topic = topic
		}
	}
}

// WithOrderingKeyMetadata sets the name of the metadata that holds the ordering key, for
// partitioners and consumers; "" sends it not at all. Default: [DefaultOrderingKeyMetadata].
// Messages without a key do not have it. An attribute of the same name gives way to it.
func WithOrderingKeyMetadata(name string) Option { return func(o *options) { o.keyName = name } }

// WithClassify sets what the errors of the publisher mean. The function returns what
// [brokers.Permanent], [brokers.Retryable] or [brokers.Unavailable] make of the error, or the error
// itself where it does not know; then [Broker.Publish] judges. It is called concurrently.
func WithClassify(classify func(error) error) Option {
	return func(o *options) {
		if classify != nil {
			o.classify = classify
		}
	}
}

// WithPing sets how the broker is asked whether it is there, with a client of its own, say.
// Default: no check.
func WithPing(ping func(context.Context) error) Option {
	return func(o *options) {
		if ping != nil {
			o.ping = ping
		}
	}
}

// WithConcurrency sets how many calls of the publisher may be in progress at once, those of all
// Publish calls together and those that hang included. Default 32. 1 sends one message after the
// other.
func WithConcurrency(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.concurrency = n
		}
	}
}

// WithMaxMessageBytes sets the largest payload that the broker takes; larger ones fail permanently,
// without being sent. Leave room for the metadata where the broker counts them too. Default 0: no
// limit known.
func WithMaxMessageBytes(n int) Option { return func(o *options) { o.maxBytes = max(n, 0) } }

// WithOrdering tells whether the broker keeps the order in which messages of a key are published to
// it: a Kafka topic whose partitioner uses the ordering key does, a standard queue of SQS does not.
// It is what Capabilities says; messages of a key are published one after the other in any case.
// Default: true.
func WithOrdering(keeps bool) Option { return func(o *options) { o.ordering = keeps } }

// WithMetadataFilter sets which attributes, and whether the correlation id, the broker takes as
// metadata. What it does not take is left out: a message that its publisher refuses because of an
// attribute could never be delivered. AMQP takes names of up to 255 bytes, say, and SQS letters,
// digits, '_', '-' and '.'. Id, type, content type and ordering key are not asked about. Default:
// all are taken. It is called concurrently.
func WithMetadataFilter(takes func(name, value string) bool) Option {
	return func(o *options) {
		if takes != nil {
			o.takes = takes
		}
	}
}
