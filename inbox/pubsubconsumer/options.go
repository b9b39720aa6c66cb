package pubsubconsumer

import (
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// The defaults of a consumer.
const (
	DefaultWorkers         = session.DefaultWorkers
	DefaultMaxMessages     = 1000
	DefaultMaxBytes        = 100 << 20
	DefaultLease           = 10 * time.Second
	DefaultMaxExtension    = time.Hour
	DefaultShutdownTimeout = session.DefaultShutdownTimeout
)

// Pub/Sub's bounds of an ack deadline.
const (
	minLease = 10 * time.Second
	maxLease = 10 * time.Minute
)

type options struct {
	session.Options

	maxMessages  int
	maxBytes     int
	lease        time.Duration
	maxExtension time.Duration
	deadLetters  string
	deadLettered bool // deadLetters is given
}

func defaults() options {
	return options{
		Options: session.Defaults("pubsubconsumer"), maxMessages: DefaultMaxMessages, maxBytes: DefaultMaxBytes,
		lease: DefaultLease, maxExtension: DefaultMaxExtension,
	}
}

// An Option changes a consumer. What makes no sense is reported by [NewConsumer].
type Option func(*options)

// WithConsumer sets the name under which messages are handled ([inbox.Message.Consumer]). Default:
// the id of the subscription. Consumers of two subscriptions that have one effect share a name; a
// name that is changed later makes all messages new.
func WithConsumer(name string) Option { return func(o *options) { o.Consumer = name } }

// WithSource sets the source of the messages ([inbox.Message.Source]), by which inboxes tell
// messages apart: those of different sources are never copies of each other. Default: the full name
// of the subscription. Subscriptions, or streams, that can hold copies of the same messages need
// the same source; one that somebody else may publish to, as a partner, needs a source of its own.
func WithSource(name string) Option { return func(o *options) { o.Source = name } }

// WithWorkers sets how many handlers run at once. Default 10.
func WithWorkers(n int) Option { return func(o *options) { o.Workers = n } }

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

// WithMaxOutstanding bounds what the consumer has claimed: the messages that are handled, and those
// that wait for it or for their next attempt. As much again can be on its way in the client's
// buffers. Defaults: 1,000 messages, 100 MiB. A message larger than bytes goes alone.
func WithMaxOutstanding(messages, bytes int) Option {
	return func(o *options) { o.maxMessages, o.maxBytes = messages, bytes }
}

// WithLease sets how long a message is this process's at a time; it is extended, five seconds
// before its end, while the process lives (MinDurationPerAckExtension and
// MaxDurationPerAckExtension of Google's client). What a killed process had claimed comes again
// when the lease ends. 10 s to 10 min; default 10 s, as a longer one leaves no more time to extend
// it. It goes before the ack deadline of the subscription.
func WithLease(d time.Duration) Option { return func(o *options) { o.lease = d } }

// WithMaxExtension bounds how long a message stays claimed, with all its attempts. One whose next
// attempt would be later is given back to Pub/Sub, which delivers it again. At least the lease;
// default 1 h.
func WithMaxExtension(d time.Duration) Option { return func(o *options) { o.maxExtension = d } }

// WithDeadLetters sets the topic, by its id or in full, that messages are published to which are
// abandoned or cannot be read. The package documentation says what happens without one.
func WithDeadLetters(topic string) Option {
	return func(o *options) { o.deadLetters, o.deadLettered = topic, true }
}

// WithShutdownTimeout sets how long handlers that are under way may go on after the context of
// [Consumer.Run] has ended, before their own context ends. Default 30 s; 0 ends it at once.
func WithShutdownTimeout(d time.Duration) Option { return func(o *options) { o.Shutdown = d } }

const legalID = `[a-zA-Z][a-zA-Z0-9\-_.~+%]{2,254}$`

var (
	legalSubscription = regexp.MustCompile(`^projects/[a-z0-9][a-z0-9.:\-]*/subscriptions/` + legalID)
	legalTopic        = regexp.MustCompile(`^projects/[a-z0-9][a-z0-9.:\-]*/topics/` + legalID)
)

// fullName of a resource of a project: kind is "subscriptions" or "topics".
func fullName(project, kind, name string) string {
	if strings.HasPrefix(name, "projects/") {
		return name
	}
	return "projects/" + project + "/" + kind + "/" + name
}

// check reports all that is wrong with what Pub/Sub's consumers have of their own.
func (o *options) check() error {
	return errors.Join(
		o.Complain(o.maxMessages < 1 || o.maxBytes < 1, "WithMaxOutstanding: %d messages, %d bytes: give at least 1 of each", o.maxMessages, o.maxBytes),
		o.Complain(o.lease < minLease || o.lease > maxLease, "WithLease: %s: Pub/Sub takes %s to %s", o.lease, minLease, maxLease),
		o.Complain(o.maxExtension < o.lease, "WithMaxExtension: %s is less than the lease of %s: give more", o.maxExtension, o.lease),
		o.Complain(o.deadLettered && !legalTopic.MatchString(o.deadLetters),
			"WithDeadLetters: %q is no topic: give its id, such as orders-dead, or projects/PROJECT/topics/ID", o.deadLetters),
	)
}
