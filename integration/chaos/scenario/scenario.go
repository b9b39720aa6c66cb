// Package scenario holds what the processes of the chaos rig share with the rig itself: the
// application's tables and events, the names of brokers, and the lines that processes leave in
// their ledgers.
package scenario

import (
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

// The brokers of the rig.
const (
	Internal = "default"  // Redis: every event, in full
	Partner  = "partner"  // Redis: published events as CloudEvents, in streams of their own
	PubSub   = "pubsub"   // Pub/Sub: published events in the native form
	RabbitMQ = "rabbitmq" // RabbitMQ: published events as CloudEvents
	NATS     = "nats"     // NATS JetStream: published events in the native form
	Kafka    = "kafka"    // Kafka: published events as CloudEvents
)

// Context is the bounded context of the application, and so the stream of events without an
// aggregate.
const Context = "chaos"

// Streams are the streams that the events go to.
func Streams() []string { return []string{Context, Context + "::account"} }

// PartnerPrefix is before the names of the partner's streams, as its destination in the
// configuration says.
const PartnerPrefix = "partner."

// PartnerStreams are the streams of the partner's broker.
func PartnerStreams() []string {
	streams := Streams()
	for i := range streams {
		streams[i] = PartnerPrefix + streams[i]
	}
	return streams
}

// ProjectionGroup is the consumer group of the projections in Redis and Kafka, and their durable
// consumer of JetStream.
const ProjectionGroup = "projection"

// ProjectionSubscription is the whole name of the projections' subscription of a stream's topic.
func ProjectionSubscription(stream string) string { return Subscription(stream) + ".projection" }

// Project is that of Pub/Sub.
const Project = "chaos"

// Subscription is the whole name of the subscription of a stream's topic.
func Subscription(stream string) string {
	return "projects/" + Project + "/subscriptions/" + Topic(stream)
}

// Topic is the id of the Pub/Sub topic of a stream, and of its subscription.
func Topic(stream string) string {
	if stream == Context {
		return "chaos"
	}
	return "chaos.account"
}

// What the exchange of RabbitMQ is bound to. Each queue gets every message.
const (
	Exchange        = "chaos"
	LedgerQueue     = "ledger"     // a quorum queue, which is not read before the end: that is what RabbitMQ holds
	ObserverQueue   = "observer"   // a classic queue
	ProjectionQueue = "projection" // a quorum queue, of which one consumer at a time has all
)

// JetStream is the stream of NATS that takes all subjects.
const JetStream = "CHAOS"

// Subject is that of a stream's messages, as brokers/nats documents it.
func Subject(stream string) string { return strings.ReplaceAll(stream, "::", ".") }

// Partitions is how many each topic of Kafka has.
const Partitions = 4

// Topics are those of Kafka, by the streams, as brokers/kafka documents it.
func Topics() []string {
	topics := Streams()
	for i := range topics {
		topics[i] = strings.ReplaceAll(topics[i], "::", ".")
	}
	return topics
}

// Account is the aggregate. Seq counts its events, in the transactions that write them: the order
// of its commits.
type Account struct {
	ID      string `gorm:"primaryKey"`
	Seq     int64
	Touched int64 // how often a commit whose outcome was not known was repeated
	uow.Aggregate
}

// Fact is written beside each event, in its transaction and not by the outbox. The rows of this
// table define what was committed.
type Fact struct {
	Tx        string `gorm:"primaryKey"` // a new one for each transaction that is tried
	N         int    `gorm:"primaryKey"` // which of its events
	Account   string // "" for events without an aggregate
	Seq       int64
	Published bool // for the external brokers, too
}

// Moved leaves the application.
type Moved struct {
	Tx      string `json:"tx"`
	N       int    `json:"n"`
	Account string `json:"account"`
	Seq     int64  `json:"seq"`
	Note    string `json:"note"`
}

// Audited never leaves the application.
type Audited Moved

// Noted has no aggregate and no key, and leaves the application.
type Noted Moved

// Catalog is that of all processes.
func Catalog() *envelope.Catalog {
	events := envelope.NewCatalog(Context)
	envelope.Register[Moved](events, envelope.Published())
	envelope.Register[Audited](events)
	envelope.Register[Noted](events, envelope.Published())
	return events
}

// AuditedType is the type, on the wire, that must never leave.
const AuditedType = "Chaos.Audited.v1"

// Outcome is what a producer knows of a transaction.
type Outcome string

// The outcomes. A commit whose answer was an error may have happened.
const (
	Committed  Outcome = "committed"
	RolledBack Outcome = "rolled back"
	Unknown    Outcome = "unknown"
)

// Line is one line of a process's ledger, a file of JSON lines that is only ever appended to. Which
// fields are set depends on whose it is.
type Line struct {
	// Of a producer:
	Tx       string  `json:"tx,omitempty"`
	Outcome  Outcome `json:"outcome,omitempty"`
	Why      string  `json:"why,omitempty"`
	Repeated bool    `json:"repeated,omitempty"` // the second attempt after a commit of unknown outcome

	// Of a consumer:
	Broker  string `json:"broker,omitempty"`
	Stream  string `json:"stream,omitempty"`
	Entry   string `json:"entry,omitempty"`   // the broker's own id
	Message string `json:"message,omitempty"` // ours
	At      int64  `json:"at,omitempty"`      // in milliseconds: when it was seen, where the broker does not tell when it arrived

	// Of a projector: a copy of a message that its inbox knew already came to the consumer of this
	// broker.
	Dropped string `json:"dropped,omitempty"`

	// Of any process that has started:
	Clock int64 `json:"clock,omitempty"` // what its clock on the wall showed, in seconds

	// Of any process that ended as it was asked to:
	Ended     bool   `json:"ended,omitempty"`
	Leaked    string `json:"leaked,omitempty"` // goroutines
	LeaseLost int64  `json:"lease_lost,omitempty"`
	Sent      int64  `json:"sent,omitempty"` // by a relay
}

// Message is what the fake of Pub/Sub holds, one JSON line each.
type Message struct {
	ID         string            `json:"id"`
	Key        string            `json:"key"`
	Attributes map[string]string `json:"attributes"`
	Data       []byte            `json:"data"`
	At         time.Time         `json:"at"`
}
