package rabbitmqconsumer

import (
	"crypto/tls"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

const (
	// maxPrefetch is that of AMQP, where it has 16 bits.
	maxPrefetch = 1<<16 - 1
	// maxShort bounds names in AMQP, in bytes.
	maxShort = 255
)

// Config is what a [Consumer] is made of, besides its arguments. The zero value has all defaults.
//
// MaxOutstandingMessages is the prefetch count, at most 65,535. With fewer than workers, workers are
// idle. Followers of a failing message fill it until that one is done with or abandoned; then other
// keys of the queue wait as well. RabbitMQ cannot bound bytes: MaxOutstandingBytes has to be 0.
type Config struct {
	inbox.ConsumerConfig

	// DeadLetterExchange is the exchange that messages are published to which are abandoned or cannot
	// be read, with the routing key that DeadLetters gives (empty without that function). Default:
	// RabbitMQ's default exchange, where the key is the name of a queue. A queue has to be bound. The
	// package documentation says what happens without both.
	DeadLetterExchange string
	// QueueDeadLetters says that the queue has a dead letter exchange (x-dead-letter-exchange, or a
	// policy): messages that are abandoned or cannot be read are rejected, and RabbitMQ puts them
	// there. A queue without one drops what is rejected: the consumer cannot see that.
	QueueDeadLetters bool
	// TLS is how TLS is talked, with a URL that begins with amqps://: a certificate authority of one's
	// own (RootCAs), a client certificate (Certificates). It must not be changed afterwards.
	TLS *tls.Config
}

// letters is where dead letters are published.
type letters struct{ exchange, routingKey string }

// complete fills in what is not set, and reports all that is wrong. to is nil where no dead letters are
// published.
func (c *Config) complete(queue, scheme string, handler inbox.Handler) (to *letters, wrong *consumer.Problems) {
	bytes := c.MaxOutstandingBytes
	wrong = consumer.Complete("rabbitmqconsumer", &c.ConsumerConfig, handler, queue, queue)
	wrong.If(queue == "" || len(queue) > maxShort, "the queue's name has %d bytes: give 1 to %d", len(queue), maxShort)
	wrong.If(bytes != 0, "MaxOutstandingBytes is %d: RabbitMQ bounds messages alone: leave it 0, and use MaxOutstandingMessages", bytes)
	wrong.If(c.MaxOutstandingMessages > maxPrefetch, "MaxOutstandingMessages is %d: give 1 to %d", c.MaxOutstandingMessages, maxPrefetch)
	wrong.If(c.TLS != nil && scheme != "amqps", "TLS needs a URL that begins with amqps://")
	if c.DeadLetters == nil && c.DeadLetterExchange == "" {
		return nil, wrong
	}
	to = &letters{exchange: c.DeadLetterExchange}
	if c.DeadLetters != nil {
		to.routingKey = c.DeadLetters(queue)
	}
	wrong.If(c.QueueDeadLetters, "DeadLetters and QueueDeadLetters: give one of them")
	wrong.If(max(len(to.exchange), len(to.routingKey)) > maxShort, "DeadLetters: AMQP takes names of at most %d bytes", maxShort)
	wrong.If(*to == letters{}, "DeadLetters: name a queue, or an exchange as DeadLetterExchange")
	wrong.If(*to == letters{routingKey: queue}, "DeadLetters: dead letters would go back to the queue %q", queue)
	return to, wrong
}
