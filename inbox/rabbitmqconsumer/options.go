package rabbitmqconsumer

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// The defaults of a consumer.
const (
	DefaultWorkers         = session.DefaultWorkers
	DefaultPrefetch        = 256
	DefaultShutdownTimeout = session.DefaultShutdownTimeout
)

const (
	// maxPrefetch is that of AMQP, where it has 16 bits.
	maxPrefetch = 1<<16 - 1
	// maxShort bounds names in AMQP, in bytes.
	maxShort = 255
)

type options struct {
	session.Options

	prefetch int
	tls      *tls.Config
	letters  *letters // nil: no place for dead letters
	byQueue  bool     // the queue puts dead letters away
}

// letters is where dead letters are published.
type letters struct{ exchange, routingKey string }

func defaults() options {
	return options{Options: session.Defaults("rabbitmqconsumer"), prefetch: DefaultPrefetch}
}

// An Option changes a consumer. What makes no sense is reported by [NewConsumer].
type Option func(*options)

// WithConsumer sets the name under which messages are handled ([inbox.Message.Consumer]). Default:
// the name of the queue. Consumers of two queues that have one effect share a name; a name that is
// changed later makes all messages new.
func WithConsumer(name string) Option { return func(o *options) { o.Consumer = name } }

// WithSource sets the source of the messages ([inbox.Message.Source]), by which inboxes tell
// messages apart: those of different sources are never copies of each other. Default: the name of
// the queue. Queues that can hold copies of the same messages need the same source; one that
// somebody else may publish to, as a partner, needs a source of its own.
func WithSource(name string) Option { return func(o *options) { o.Source = name } }

// WithWorkers sets how many handlers run at once. Default 10.
func WithWorkers(n int) Option { return func(o *options) { o.Workers = n } }

// WithPrefetch bounds the messages that the consumer has claimed: those that are handled, and those
// that wait for it or for their next attempt. It bounds the memory. Default 256; 1 to 65,535. With
// fewer than workers, workers are idle. Followers of a failing message fill it until that one is
// done with or abandoned; then other keys of the queue wait as well.
func WithPrefetch(n int) Option { return func(o *options) { o.prefetch = n } }

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

// WithDeadLetters sets the exchange, and the routing key, that messages are published to which are
// abandoned or cannot be read. An empty exchange is RabbitMQ's default one, where the key is the
// name of a queue. A queue has to be bound. The package documentation says what happens without it.
func WithDeadLetters(exchange, routingKey string) Option {
	return func(o *options) { o.letters = &letters{exchange, routingKey} }
}

// WithQueueDeadLetters says that the queue has a dead letter exchange (x-dead-letter-exchange, or a
// policy): messages that are abandoned or cannot be read are rejected, and RabbitMQ puts them there.
// A queue without one drops what is rejected: the consumer cannot see that.
func WithQueueDeadLetters() Option { return func(o *options) { o.byQueue = true } }

// WithTLS sets how TLS is talked, with a URL that begins with amqps://: a certificate authority of
// one's own (RootCAs), a client certificate (Certificates). The configuration must not be changed
// afterwards.
func WithTLS(config *tls.Config) Option { return func(o *options) { o.tls = config } }

// check reports all that is wrong with what is RabbitMQ's own.
func (o *options) check(queue, scheme string) error {
	return errors.Join(
		o.Complain(queue == "" || len(queue) > maxShort, "the queue's name has %d bytes: give 1 to %d", len(queue), maxShort),
		o.Complain(o.prefetch < 1 || o.prefetch > maxPrefetch, "WithPrefetch: %d: give 1 to %d", o.prefetch, maxPrefetch),
		o.Complain(o.letters != nil && o.byQueue, "WithDeadLetters and WithQueueDeadLetters: give one of them"),
		o.Complain(o.letters != nil && max(len(o.letters.exchange), len(o.letters.routingKey)) > maxShort,
			"WithDeadLetters: AMQP takes names of at most %d bytes", maxShort),
		o.Complain(o.letters != nil && *o.letters == letters{}, "WithDeadLetters: name an exchange, or with the default one a queue"),
		o.Complain(o.letters != nil && *o.letters == letters{routingKey: queue}, "WithDeadLetters: dead letters would go back to the queue %q", queue),
		o.Complain(o.tls != nil && scheme != "amqps", "WithTLS needs a URL that begins with amqps://"),
	)
}
