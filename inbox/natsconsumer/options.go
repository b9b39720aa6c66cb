package natsconsumer

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// The defaults of a consumer.
const (
	DefaultWorkers         = session.DefaultWorkers
	DefaultMaxMessages     = 500
	DefaultMaxBytes        = 64 << 20
	DefaultShutdownTimeout = session.DefaultShutdownTimeout
)

type options struct {
	session.Options

	maxMessages int
	maxBytes    int
	letters     string
	sole        bool
	create      *jetstream.ConsumerConfig // nil: the durable exists
	pace        pace
}

// pace is how often things that are not settings happen; tests have another one.
type pace struct {
	tick  time.Duration // between looks at what has waited too long
	probe time.Duration // between looks at the durable consumer
	away  time.Duration // for which a message stays away that is given back to make room
	gap   time.Duration // how long, beside AckWait, its place in its key is kept
}

func defaults() options {
	return options{
		Options: session.Defaults("natsconsumer"), maxMessages: DefaultMaxMessages, maxBytes: DefaultMaxBytes,
		pace: pace{tick: time.Second, probe: 5 * time.Second, away: 5 * time.Second, gap: 15 * time.Second},
	}
}

// An Option changes a consumer. What makes no sense is reported by [NewConsumer].
type Option func(*options)

// WithConsumer sets the name under which messages are handled ([inbox.Message.Consumer]). Default:
// the name of the durable consumer. Consumers of two streams that have one effect share a name; a name
// that is changed later makes all messages new.
func WithConsumer(name string) Option { return func(o *options) { o.Consumer = name } }

// WithSource sets the source of the messages ([inbox.Message.Source]), by which inboxes tell
// messages apart: those of different sources are never copies of each other. Default: the name of
// the stream. Streams that can hold copies of the same messages need the same source; one that
// somebody else may publish to, as a partner, needs a source of its own.
func WithSource(name string) Option { return func(o *options) { o.Source = name } }

// WithWorkers sets how many handlers run at once. Default 10.
func WithWorkers(n int) Option { return func(o *options) { o.Workers = n } }

// WithMaxOutstanding bounds what the consumer has claimed: the messages that are handled, and those
// that wait for it or for their next attempt. Defaults: 500 messages, 64 MiB of payloads and headers. A
// message larger than bytes goes alone. While a sole consumer waits for what was lost ([WithSole]), what
// has come is in memory beside that, up to what was delivered and not confirmed. MaxAckPending of the durable consumer (1,000 by default) bounds all its processes
// together.
func WithMaxOutstanding(messages, bytes int) Option {
	return func(o *options) { o.maxMessages, o.maxBytes = messages, bytes }
}

// WithSole says that no other process consumes the durable while this one runs. Then order holds across
// crashes, outages and lost deliveries as well: at its start, and where the numbers of the server's
// deliveries show that one was lost, the consumer waits until what was delivered comes again, a little
// longer than AckWait at most, before it takes anything newer.
func WithSole() Option { return func(o *options) { o.sole = true } }

// WithCreate creates the durable consumer, as config says, where it does not exist; its name and its
// AckPolicy (explicit) are set here. One that exists stays as it is. Default: it has to exist.
func WithCreate(config jetstream.ConsumerConfig) Option {
	return func(o *options) { o.create = &config }
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

// WithDeadLetters sets the subject that messages are published to which are abandoned or cannot be
// read. A stream has to take it. The package documentation says what happens without one.
func WithDeadLetters(subject string) Option { return func(o *options) { o.letters = subject } }

// check reports all that is wrong with what is JetStream's own.
func (o *options) check(stream, durable string) error {
	return errors.Join(
		o.Complain(!legalName(stream), "%.40q is no name of a stream: give one without blanks, dots, * and >", stream),
		o.Complain(!legalName(durable), "%.40q is no name of a durable consumer: give one without blanks, dots, * and >", durable),
		o.Complain(o.maxMessages < 1 || o.maxBytes < 1, "WithMaxOutstanding: %d messages, %d bytes: give at least 1 of each", o.maxMessages, o.maxBytes),
		o.Complain(strings.ContainsAny(o.letters, " \t\r\n*>"), "WithDeadLetters: %.40q is no subject: give one without blanks, * and >", o.letters),
	)
}

// maxName is what the server takes.
const maxName = 255

func legalName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsAny(name, " \t\r\n.*>/\\")
}
