package config

import (
	"time"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// Config is a checked configuration. It is safe for concurrent use as long as nobody changes it.
type Config struct {
	// Databases by name.
	Databases map[string]Database
	// Outbox holds what is common to all brokers.
	Outbox Outbox
	// Brokers by name: the internal one, the external ones, and possibly some that are not in use.
	Brokers map[string]Broker
	// Cleanup is the schedule on which finished rows are removed.
	Cleanup Cleanup
	// Monitor is the HTTP interface for operators.
	Monitor Monitor
	// Warnings are about settings that work, but perhaps not as meant; in the order of their lines.
	Warnings []Problem
}

// Database is one database with an outbox table.
type Database struct {
	// Driver is postgres, sqlserver, mysql or sqlite. Required. mysql, which is MariaDB too, needs
	// fanout.WithDriver.
	Driver outbox.Dialect
	// DSN is the connection string, in the driver's own form. Empty where the application passes
	// its own handle in Go. On SQLite such a handle is used whether there is a DSN or not.
	DSN Secret
	// Notify makes writers notify relays in other processes of new rows, and relays listen for
	// that. PostgreSQL only, where it is true by default.
	Notify bool
}

// Outbox holds what is common to all brokers.
type Outbox struct {
	// Table is the outbox table. Default: outbox.DefaultTable.
	Table string
	// InternalBroker gets every event. Default: outbox.DefaultInternalBroker.
	InternalBroker string
	// ExternalBrokers get the events that are marked as published. Default: none.
	ExternalBrokers []string
	// MaxPayloadBytes bounds one payload as it goes on the wire. Default:
	// outbox.DefaultMaxPayloadBytes.
	MaxPayloadBytes int
	// SerializeKeys makes writers of one ordering key take turns, see outbox.Routing. Default:
	// false.
	SerializeKeys bool
	// Policy is what the file says about delivery; zero where it says nothing. [Config.Policy] adds
	// a broker's overrides and the defaults.
	Policy outbox.Policy
}

// Types of broker whose settings are checked here.
const (
	TypeRedis    = "redis"    // Redis Streams
	TypePubSub   = "pubsub"   // Google Cloud Pub/Sub; a program imports its client: package brokers/gcppubsub
	TypeRabbitMQ = "rabbitmq" // RabbitMQ; a program imports its client: package brokers/rabbitmq
	TypeNATS     = "nats"     // NATS JetStream; a program imports its client: package brokers/nats
	TypeKafka    = "kafka"    // Kafka; a program imports its client: package brokers/kafka
	TypeWebhook  = "webhook"  // an HTTPS endpoint; see package brokers/webhook
	TypeMemory   = "memory"   // a list in this process, for tests
)

// BrokerTypes lists the types that a configuration may name without [WithBrokerTypes].
func BrokerTypes() []string {
	return []string{TypeRedis, TypePubSub, TypeRabbitMQ, TypeNATS, TypeKafka, TypeWebhook, TypeMemory}
}

// Ordering says whether messages with the same ordering key wait for each other.
type Ordering string

// The values of Ordering.
const (
	OrderingPerKey Ordering = "per_key"
	OrderingNone   Ordering = "none"
)

// OnAbandon says what becomes of an ordering key once a message of it was abandoned.
type OnAbandon string

// The values of OnAbandon.
const (
	// OnAbandonContinue lets the key go on with its next message.
	OnAbandonContinue OnAbandon = "continue"
	// OnAbandonBlock makes the key wait for an operator, in the message's priority class.
	OnAbandonBlock OnAbandon = "block"
)

// Broker is one target of delivery. What it overrides is zero where the file says nothing;
// [Config.Policy] and [Config.Retention] return what is in force.
type Broker struct {
	// Type is one of BrokerTypes, or a name that was given to WithBrokerTypes. Required.
	Type string
	// URL to connect to, with its credentials: redis, rabbitmq, nats and webhook (required), and the
	// types registered in Go.
	URL Secret
	// TLS is how client and server prove who they are, beyond what the URL says: rabbitmq, nats,
	// kafka and webhook.
	TLS TLS
	// CreateDestinations creates what messages are sent to where it is missing: the topics of
	// pubsub, the exchange of rabbitmq, the streams of nats, the topics of kafka. Default: false, so
	// that its messages wait.
	CreateDestinations bool
	// MaxMessageBytes is the server's own limit for a message, where it is not the usual one:
	// rabbitmq, nats, kafka and webhook. Default: the client's.
	MaxMessageBytes int
	// Project of Google Cloud: pubsub, required.
	Project string
	// Endpoint replaces the service's own, such as "localhost:8085" for an emulator: pubsub.
	Endpoint string
	// Compression is the size, in bytes, from which requests are compressed: pubsub. Default: 0,
	// never.
	Compression int
	// Redis has the settings that belong to the type redis alone.
	Redis Redis
	// RabbitMQ has the settings that belong to the type rabbitmq alone.
	RabbitMQ RabbitMQ
	// NATS has the settings that belong to the type nats alone.
	NATS NATS
	// Kafka has the settings that belong to the type kafka alone.
	Kafka Kafka
	// Webhook has the settings that belong to the type webhook alone.
	Webhook Webhook
	// Options of the types registered in Go. Nil for the built-in ones.
	Options Options

	// Format of the messages. Default: envelope.FormatNative. External brokers only.
	Format envelope.Format
	// Source is the CloudEvents source. Default: "/<context>/<aggregate>". Only with
	// envelope.FormatCloudEvents.
	Source string
	// Extensions names the extensions that leave with the broker's messages, such as tenant_id and
	// actor. Default: none. External brokers only.
	Extensions []string
	// Filter limits the broker to event types that match one of these patterns, in the form of
	// path.Match, such as "Ordering.*". Default: none, which lets all pass. External brokers only.
	Filter []string
	// Destination, TTL, ContentType and Attributes replace what an event says by itself.
	outbox.Overrides

	// Rate is the most messages in a second that one process publishes. Default: 0, as many as the
	// broker takes.
	Rate float64
	// Breaker overrides the outbox's, field by field.
	Breaker outbox.Breaker
	// Workers, BatchSize, BatchBytes, PublishTimeout, Ordering and OnAbandon override those of the
	// outbox.
	Workers, BatchSize, BatchBytes int
	PublishTimeout                 time.Duration
	Ordering                       Ordering
	OnAbandon                      OnAbandon
	// Retry overrides the outbox's, field by field. A negative Jitter means none.
	Retry outbox.Retry
	// Retention overrides the cleanup's, field by field.
	Retention cleanup.Retention
}

// Cleanup is the schedule on which finished rows are removed.
type Cleanup struct {
	// Interval between two runs. Default: 1 h.
	Interval time.Duration
	// PublishedRetention is how long rows stay after they were published. Default: 168 h.
	PublishedRetention time.Duration
	// AbandonedRetention is how long rows stay after they were abandoned. Default: 720 h.
	AbandonedRetention time.Duration
	// BatchSize is the most rows that one statement removes. Default: 5,000.
	BatchSize int
	// MaxLag is the lag of the delivery to a broker above which a run slows down to a batch every five
	// seconds, as long as that delivery comes forward. Default: 10 s.
	MaxLag time.Duration
}

// DefaultCleanup is the schedule where the configuration gives none.
func DefaultCleanup() Cleanup {
	return Cleanup{
		Interval: cleanup.DefaultInterval, BatchSize: cleanup.DefaultBatchSize, MaxLag: cleanup.DefaultMaxLag,
		PublishedRetention: cleanup.DefaultPublishedRetention, AbandonedRetention: cleanup.DefaultAbandonedRetention,
	}
}
