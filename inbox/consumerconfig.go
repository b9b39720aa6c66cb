package inbox

import (
	"log/slog"
	"time"
)

// The defaults of a [ConsumerConfig]. Those of its other fields are [DefaultTimeout] and
// [DefaultRetry].
const (
	DefaultWorkers                = 10
	DefaultMaxOutstandingMessages = 500
	DefaultMaxOutstandingBytes    = 64 << 20
	DefaultShutdownTimeout        = 30 * time.Second
)

// ConsumerConfig is what the consumers of all brokers have in common. Each has a Config that embeds
// it, beside what its broker alone knows. The zero value of a field stands for its default. A
// consumer copies its configuration when it is made, and reports all that is wrong with it at once.
type ConsumerConfig struct {
	// Consumer is the name under which messages are handled ([Message].Consumer). Default: the name
	// of the group (Kafka, Redis), the durable consumer, the queue, or the id of the subscription.
	// Consumers that have one effect together share a name; under a new name every message is new.
	Consumer string
	// Source names the source of messages ([Message].Source), given what the broker calls it: the
	// topic, stream or queue, or the subscription in full. Default: that name. Inboxes tell messages
	// apart by it: those of different sources are never copies of each other. What can hold copies of
	// the same messages needs the same source; what another party may write to, such as a partner,
	// needs a source of its own. It is called once for each name, by NewConsumer. See [Always] for one
	// name.
	Source func(name string) string
	// Workers is how many handlers run at once. Default 10.
	Workers int
	// MaxOutstandingMessages and MaxOutstandingBytes (of payloads and fields) bound what the consumer has
	// claimed and not confirmed: messages that are being handled, that wait for a worker, or for
	// their next attempt; on Kafka for each partition, on Redis for each stream. They bound its
	// memory, of which a message takes twice its bytes: as it came, and as it was read. RabbitMQ
	// bounds messages alone, 65,535 at most, and refuses MaxOutstandingBytes. Defaults: 500
	// messages, 64 MiB. A message larger than that is handled all the same. The messages of a key
	// that wait behind a failing one count, too: the package of each consumer says what happens
	// when they fill the room. What is done does not, whatever it was behind.
	MaxOutstandingMessages, MaxOutstandingBytes int
	// Retry says how failures are repeated, and after how many a message becomes a dead letter.
	// Default: [DefaultRetry], also for each field that is zero.
	Retry Retry
	// Timeout bounds one attempt: the handler's context ends then. Default 30 s.
	Timeout time.Duration
	// ShutdownTimeout is how long running handlers may continue after the context of Run has ended,
	// before their own contexts end. Default 30 s; negative: their contexts end at once.
	ShutdownTimeout time.Duration
	// Decoder makes events of messages that other programs have written in forms of their own; it
	// is asked before anything else. Default: none, so that all forms but those of [Decode] are
	// unreadable.
	Decoder Decoder
	// Unreadable says what happens with messages that cannot be read. Default: [UnreadableDeadLetter].
	Unreadable Unreadable
	// DeadLetters names the place for messages that are abandoned or cannot be read, given what the
	// broker calls their source: a topic (Kafka, Pub/Sub), a subject (NATS), a stream (Redis), or a
	// routing key (RabbitMQ). It has to exist, except on Redis, whose default is a stream for each
	// group. Elsewhere there is none by default: the package of each consumer says what happens then.
	// It is called once for each name, by NewConsumer. See [Always] for one place.
	DeadLetters func(name string) string
	// Observer is notified of each attempt; nil for none.
	Observer Observer
	// Log gets the lines of the consumer and of its messages. Default: slog.Default().
	Log *slog.Logger
}

// Unreadable says what a consumer does with unreadable messages: those of which neither the [Decoder]
// nor [Decode] makes an event, such as a tombstone of Kafka, or JSON without an envelope. A message
// whose flat field says a type that the handler skips (see [Skipper]) is skipped in any case, and what
// the handler cannot decode of an event that was read is the handler's to judge.
type Unreadable string

const (
	// UnreadableDeadLetter keeps them. They go to the dead letters of the broker (DeadLetters); where
	// there are none, to those of the handler (see [Rejecter]), as [Handlers] have them in the inbox
	// table. Where there are none either, Pub/Sub's dead letter policy takes them, which delivers them
	// and all that is behind them in their key again until then. Without any place they are held,
	// with an error in the log: neither confirmed nor lost. What is held blocks no key, but it
	// takes room (MaxOutstandingMessages).
	UnreadableDeadLetter Unreadable = "dead_letter"
	// UnreadableSkip confirms them: they are counted as skipped, and logged as a warning, once a
	// minute at most for each shape. What the broker does not keep is lost.
	UnreadableSkip Unreadable = "skip"
)

// Always returns a function that gives one name for all sources, for the fields Source and DeadLetters
// of a [ConsumerConfig].
func Always(name string) func(string) string { return func(string) string { return name } }
