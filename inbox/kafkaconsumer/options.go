package kafkaconsumer

import (
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// The defaults of a consumer.
const (
	DefaultWorkers         = session.DefaultWorkers
	DefaultMaxMessages     = 500
	DefaultMaxBytes        = 16 << 20
	DefaultShutdownTimeout = session.DefaultShutdownTimeout
)

// maxName bounds the names of topics (Kafka's own limit) and groups.
const maxName = 249

type options struct {
	session.Options

	source      func(topic string) string
	maxMessages int
	maxBytes    int
	fromNow     bool
	letters     func(topic string) string // nil: no place for dead letters
	client      []kgo.Opt
	pace        pace
}

// pace is how often things that are not settings happen; tests have another one.
type pace struct {
	probe  time.Duration // between looks at the cluster
	commit time.Duration // between commits of offsets
}

func defaults() options {
	return options{
		Options: session.Defaults("kafkaconsumer"), source: func(topic string) string { return topic },
		maxMessages: DefaultMaxMessages, maxBytes: DefaultMaxBytes, pace: pace{probe: 5 * time.Second, commit: time.Second},
	}
}

// An Option changes a consumer. What makes no sense is reported by [NewConsumer].
type Option func(*options)

// WithConsumer sets the name under which messages are handled ([inbox.Message.Consumer]). Default:
// the name of the group. A name that is changed later makes all messages new.
func WithConsumer(name string) Option { return func(o *options) { o.Consumer = name } }

// WithSource gives the topics names of their own as sources of messages ([inbox.Message.Source]), by
// which inboxes tell messages apart: those of different sources are never copies of each other.
// Default: the name of the topic. Topics that can hold copies of the same messages need the same
// source; one that somebody else may write to, as a partner, needs a source of its own.
func WithSource(name func(topic string) string) Option {
	return func(o *options) { o.source = name }
}

// WithWorkers sets how many handlers run at once. Default 10.
func WithWorkers(n int) Option { return func(o *options) { o.Workers = n } }

// WithMaxOutstanding bounds what the consumer has claimed of each partition: the messages that are
// handled, and those that wait for it or for their next attempt. A partition that has as many is not
// read on until it has half as many; what was read until then comes on top, up to 500 messages.
// Defaults: 500 messages, 16 MiB. Followers of a failing message fill it until that one is done with
// or abandoned; then other keys of its partition wait as well, other partitions go on.
func WithMaxOutstanding(messages, bytes int) Option {
	return func(o *options) { o.maxMessages, o.maxBytes = messages, bytes }
}

// WithRetry sets how failures are repeated. Default: [inbox.DefaultRetry].
func WithRetry(retry inbox.Retry) Option {
	return func(o *options) { o.Retry = retry.WithDefaults(inbox.DefaultRetry()) }
}

// WithTimeout bounds one attempt of the handler. Default 30 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.Timeout = d } }

// WithObserver sets who is told of each attempt. Default: nobody.
func WithObserver(observer inbox.Observer) Option { return func(o *options) { o.Observer = observer } }

// WithLogger sets where the consumer logs to. Default: slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(o *options) {
		if log != nil {
			o.Log = log
		}
	}
}

// WithShutdownTimeout sets how long handlers that are under way may go on after the context of
// [Consumer.Run] has ended, before their own context ends. Default 30 s; 0 ends it at once.
func WithShutdownTimeout(d time.Duration) Option { return func(o *options) { o.Shutdown = d } }

// WithDeadLetters names the topic that gets the dead letters of a topic: messages that are abandoned
// or cannot be read. It has to exist. The package documentation says what happens without it.
func WithDeadLetters(name func(topic string) string) Option {
	return func(o *options) { o.letters = name }
}

// WithNewOnly has a group that has no offsets yet begin with what is added from now on. Default: with
// the oldest message of each partition. It changes nothing for a group that has them.
func WithNewOnly() Option { return func(o *options) { o.fromNow = true } }

// WithClient sets options of the client: TLS (kgo.DialTLSConfig), SASL (kgo.SASL), the id
// (kgo.ClientID), a static member of the group (kgo.InstanceID), its timeouts (kgo.SessionTimeout,
// kgo.RebalanceTimeout). Servers, group, topics, offsets and commits are the consumer's own.
func WithClient(opts ...kgo.Opt) Option {
	return func(o *options) { o.client = append(o.client, opts...) }
}

// check reports all that is wrong with what is Kafka's own.
func (o *options) check(servers []string, group string, topics []string) error {
	wrong := []error{
		o.Complain(len(servers) == 0, "there is no bootstrap server: give host:port"),
		o.Complain(group == "" || len(group) > maxName, "the group's name has %d bytes: give 1 to %d", len(group), maxName),
		o.Complain(len(topics) == 0, "there is no topic to read: name at least one"),
		o.Complain(o.maxMessages < 1 || o.maxBytes < 1, "WithMaxOutstanding: %d messages, %d bytes: give at least 1 of each", o.maxMessages, o.maxBytes),
		o.Complain(o.source == nil, "WithSource has no function: leave it out for the names of the topics"),
	}
	seen := map[string]bool{}
	for _, topic := range topics {
		wrong = append(wrong,
			o.Complain(topic == "" || len(topic) > maxName, "the topic's name %.20q has %d bytes: give 1 to %d", topic, len(topic), maxName),
			o.Complain(seen[topic], "the topic %q is named twice", topic))
		seen[topic] = true
	}
	for _, topic := range topics {
		if o.letters != nil {
			dead := o.letters(topic)
			wrong = append(wrong, o.Complain(dead == "" || seen[dead], "WithDeadLetters: %q is no topic for the dead letters of %q: name one that is not read", dead, topic))
		}
		if o.source != nil && o.source(topic) != topic {
			wrong = append(wrong, inbox.ValidateSource(o.source(topic)))
		}
	}
	return errors.Join(wrong...)
}
