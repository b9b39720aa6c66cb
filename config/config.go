package config

import (
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// Config is a checked configuration. It is safe for concurrent use as long as it is not modified.
type Config struct {
	// Databases by name.
	Databases map[string]Database
	// Tenants are databases that come and go while a relay runs.
	Tenants Tenants
	// Consumers by name: the inboxes that an operator's search looks into. Relays do not use them.
	Consumers map[string]Consumer
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

	lookup func(name string) (value string, ok bool)   // of variables; nil: the environment
	again  func(types []adapter.Type) (*Config, error) // reads the file once more; nil where there was none
}

// Secret is a text that no output shows: see adapter.Secret.
type Secret = adapter.Secret

// Database is one database with an outbox table.
type Database struct {
	// Driver is postgres, sqlserver, mysql or sqlite. Required. mysql is MariaDB, too.
	Driver outbox.Dialect
	// DSN is the connection string, in the driver's own form. Empty where the application passes
	// its own handle in Go. On SQLite such a handle is used whether there is a DSN or not.
	DSN Secret
	// Notify makes writers notify relays in other processes of new rows, and relays listen for
	// that. PostgreSQL only, where it is true by default.
	Notify bool
}

// Consumer is where a consumer has its inbox: see package inbox. Its name in the configuration is the one in the inbox.
type Consumer struct {
	// Driver is that of a [Database]. Required.
	Driver outbox.Dialect
	// DSN is the connection string, in the driver's own form. Required. A role that may only read the table
	// will do; on PostgreSQL one that may also write it sees which messages are being handled.
	DSN Secret
	// Table is the inbox table. Default: inbox.DefaultTable.
	Table string
	// Broker is the one whose messages it gets. Default: the internal broker.
	Broker string
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
	// Type is the name of the adapter's type, such as redis or kafka. Required in a file; in Go it is
	// needed only where there are no Settings.
	Type string
	// Settings are those of the adapter: the server, how to log in, and whatever else it takes, such as
	// a *kafka.Settings. Nil where a file was read by a program that does not link the adapter.
	Settings adapter.Settings

	// MessageFormat is "format" in a file. Default: envelope.FormatNative. External brokers only.
	MessageFormat envelope.Format
	// JSON is "encoding: json" in a file: the data of all messages is JSON, also of event types that have an
	// encoding of their own, such as Protobuf. Default: false, "encoding: own". External brokers only.
	JSON bool
	// Source is the CloudEvents source. Default: "/<context>/<aggregate>". Only with
	// envelope.FormatCloudEvents.
	Source string
	// Extensions names the extensions that leave with the broker's messages, such as tenant_id and
	// actor. Default: none. External brokers only.
	Extensions []string
	// Include names what else leaves with them, such as the event's Go type. Default: nothing.
	// External brokers only.
	Include envelope.Include
	// Filter limits the broker to event types that match one of these patterns, in the form of
	// path.Match, such as "Ordering.*". Default: none, which lets all pass. External brokers only.
	Filter []string
	// Destination, TTL, ContentType and Attributes replace what an event says by itself.
	outbox.Overrides

	// Sign are the keys, by their ids, that sign each message as it is sent, for consumers that share the
	// broker with others; package signature has their forms. Give two while a key is changed. Not for
	// type webhook, which signs by its secrets. Default: none; messages are not signed.
	Sign map[string]Secret
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
	// Keep overrides the outbox's Policy.DeletePublished: false removes a row as soon as the broker has
	// confirmed it, true keeps it for as long as Retention says. Default: nil, as the outbox has it.
	Keep *bool
	// Retry overrides the outbox's, field by field. A negative Jitter means none.
	Retry outbox.Retry
	// Retention overrides the cleanup's, field by field.
	Retention cleanup.Retention
}

// Format implements fmt.Formatter: a broker is printed by its type alone, since fmt shows what is behind a
// pointer without asking it, where a verb does not fit.
func (b Broker) Format(state fmt.State, _ rune) { _, _ = fmt.Fprintf(state, "{%s}", b.Type) }

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
