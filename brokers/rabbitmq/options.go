package rabbitmq

import (
	"crypto/tls"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

const (
	// DefaultExchange is the exchange that messages go to unless [WithExchange] names another one.
	DefaultExchange = "fanout"

	// DefaultMaxMessageBytes is the largest payload unless [WithMaxMessageBytes] sets another limit:
	// that of RabbitMQ 4.0 and later (max_message_size). Up to 3.13 the server's default is 128 MiB.
	DefaultMaxMessageBytes = 16 << 20

	defaultHeartbeat   = 10 * time.Second
	defaultDialTimeout = 10 * time.Second
)

type options struct {
	exchange   string
	routingKey func(*brokers.Message) string
	optional   bool // messages may be unroutable
	declare    bool
	expiration time.Duration // 0 = none
	maxBytes   int
	heartbeat  time.Duration
	tls        *tls.Config
}

func defaults() options {
	return options{
		exchange:   DefaultExchange,
		routingKey: func(m *brokers.Message) string { return m.Destination },
		maxBytes:   DefaultMaxMessageBytes,
		heartbeat:  defaultHeartbeat,
	}
}

// An Option changes a broker. Options that have no sensible meaning (a negative number, an empty
// name) count as not given.
type Option func(*options)

// WithExchange sets the exchange that messages go to, of whatever type. Default [DefaultExchange]. It
// has to exist, unless [WithDeclare] is given.
func WithExchange(name string) Option {
	return func(o *options) {
		if name != "" {
			o.exchange = name
		}
	}
}

// WithRoutingKey sets how the routing key of a message is made, as from destination and type, so that
// queues can be bound by both. Default: the destination. key is called concurrently, and must neither
// change nor keep the message.
func WithRoutingKey(key func(m *brokers.Message) string) Option {
	return func(o *options) {
		if key != nil {
			o.routingKey = key
		}
	}
}

// WithUnroutableDropped counts a message as published that no queue is bound for, and that RabbitMQ
// therefore drops. Default: such a message waits (unavailable, scope destination) until there is a
// binding.
func WithUnroutableDropped() Option { return func(o *options) { o.optional = true } }

// WithDeclare declares the exchange with each new connection: of type topic, and durable. Queues and
// bindings are the consumers' to declare. The user needs permission to configure the exchange. Where
// it is there with another type, the broker is unavailable.
func WithDeclare() Option { return func(o *options) { o.declare = true } }

// WithExpiration has RabbitMQ drop, or dead-letter, a message that has been in a queue for d, in whole
// milliseconds; at least one. Default: only messages with a time to live expire, when that is over, and
// whichever of the two is shorter holds. What has expired is lost for a consumer that was away for
// longer. RabbitMQ takes no expiration above ten years (3,650 days): such messages do not expire.
func WithExpiration(d time.Duration) Option {
	return func(o *options) {
		if d >= time.Millisecond {
			o.expiration = d
		}
	}
}

// WithMaxMessageBytes tells the broker the server's own limit (max_message_size), so that a payload
// above it fails for good and by itself. Default [DefaultMaxMessageBytes], at most 512 MiB, as in
// RabbitMQ. A limit that is too high is corrected by the server's first refusal, at the cost of a
// channel and perhaps of duplicates.
func WithMaxMessageBytes(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.maxBytes = min(n, maxMessageBytes)
		}
	}
}

// WithHeartbeat sets how often client and server assure each other that they are there; a connection
// that is silent for longer than 1.5 times that is lost. Default 10 s, at least one second, at most
// what the server asks for. The parameter heartbeat of the URL goes before it.
func WithHeartbeat(d time.Duration) Option {
	return func(o *options) {
		if d >= time.Second {
			o.heartbeat = d
		}
	}
}

// WithTLS sets how TLS is talked, with a URL that begins with amqps://: a certificate authority of
// one's own (RootCAs), a client certificate (Certificates). An empty ServerName means the URL's host.
// The URL's own parameters (cacertfile, certfile, keyfile, server_name_indication) are then ignored.
// The configuration must not be changed afterwards.
func WithTLS(config *tls.Config) Option { return func(o *options) { o.tls = config } }
