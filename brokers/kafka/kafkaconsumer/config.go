package kafkaconsumer

import (
	"cmp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// defaultMaxUncommittedMessages is that of [Config].
const defaultMaxUncommittedMessages = 100_000

// maxName bounds the names of topics (Kafka's own limit) and groups.
const maxName = 249

// Config is what a [Consumer] is made of, besides its arguments. The zero value has all defaults.
//
// MaxOutstandingMessages and MaxOutstandingBytes hold for each partition, and count keys and headers,
// of which each takes 64 bytes beside its own. A partition that has as many is not read on until it has
// half as many; what was polled until then comes on top: up to 500 messages, of about an eighth of
// the bytes together, or one that is larger. With the defaults 20 partitions can hold 1.4 GiB of
// messages, and take twice as much memory, if messages are larger than 128 KiB and handlers are slow
// or fail: lower them there. Followers of a failing message fill the room until that one is done with
// or abandoned; then other keys of its partition wait as well, other partitions go on.
//
// What the client has fetched and the consumer has not claimed comes on top of that. Kafka bounds it as
// it is on the wire, by kgo.FetchMaxBytes (50 MiB of each server by default), and batches that compress
// well take many times as much: up to 2 GiB each, for as long as they are polled from. Where producers
// that you do not trust write to a topic, give its consumers a smaller kgo.FetchMaxBytes, in Client, and
// the topic a small max.message.bytes: a batch can be a thousand times as large as that.
type Config struct {
	inbox.ConsumerConfig

	// MaxUncommittedMessages bounds, for each partition, the messages that are done and cannot be
	// committed, since one before them is not: another member gets them again when the partition
	// moves, and this one after a restart. A partition that has as many is not read on until it has
	// half as many, with a warning; what was claimed by then comes on top. They take no memory.
	// Default 100,000: 400 a second while a message uses up its attempts (four minutes by default,
	// see Retry), and as many copies as inbox.Handle drops in 15 seconds. Raise it for busier
	// partitions; lower it where copies are expensive.
	MaxUncommittedMessages int
	// NewOnly has a group that has no offsets yet begin with what is added from now on. Default: with
	// the oldest message of each partition. It changes nothing for a group that has them.
	NewOnly bool
	// Client are options of the client: TLS (kgo.DialTLSConfig), SASL (kgo.SASL), the id
	// (kgo.ClientID), a static member of the group (kgo.InstanceID), its timeouts
	// (kgo.SessionTimeout, kgo.RebalanceTimeout). Servers, group, topics, offsets and commits are the
	// consumer's own.
	Client []kgo.Opt

	pace pace
}

// pace is how often things that are not settings happen; tests have another one.
type pace struct {
	probe  time.Duration // between looks at the cluster
	commit time.Duration // between commits of offsets
}

// complete fills in what is not set, and reports all that is wrong.
func (c *Config) complete(servers []string, group string, topics []string, handler inbox.Handler) error {
	wrong := consumer.Complete("kafkaconsumer", &c.ConsumerConfig, handler, group, topics...)
	c.MaxUncommittedMessages = cmp.Or(c.MaxUncommittedMessages, defaultMaxUncommittedMessages)
	wrong.If(c.MaxUncommittedMessages < 0, "MaxUncommittedMessages is %d: give a positive value, or 0 for %d", c.MaxUncommittedMessages, defaultMaxUncommittedMessages)
	wrong.If(len(servers) == 0, "there is no bootstrap server: give host:port")
	wrong.If(group == "" || len(group) > maxName, "the group's name has %d bytes: give 1 to %d", len(group), maxName)
	wrong.Sources("topic", topics, c.DeadLetters)
	for _, topic := range topics {
		wrong.If(len(topic) > maxName, "the topic's name %.20q has %d bytes: give 1 to %d", topic, len(topic), maxName)
	}
	if c.pace == (pace{}) {
		c.pace = pace{probe: 5 * time.Second, commit: time.Second}
	}
	return wrong.Err()
}
