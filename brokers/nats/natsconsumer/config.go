package natsconsumer

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// Config is what a [Consumer] is made of, besides its arguments. The zero value has all defaults.
//
// MaxOutstandingBytes counts headers as well as payloads. While an exclusive consumer waits for what
// was lost, what has come is in memory beside MaxOutstandingMessages and MaxOutstandingBytes, up to
// what was delivered and not confirmed. MaxAckPending of the durable consumer (1,000 by default) bounds
// all its processes together.
type Config struct {
	inbox.ConsumerConfig

	// Exclusive says that no other process consumes the durable while this one runs. Then order holds
	// across crashes, outages and lost deliveries as well: at its start, and where the numbers of the
	// server's deliveries show that one was lost, the consumer waits until what was delivered comes
	// again, a little longer than AckWait at most, before it takes anything newer.
	Exclusive bool
	// Create creates the durable consumer, as it says, where it does not exist; its name and its
	// AckPolicy (explicit) are set here. One that exists stays as it is. Nil: it has to exist.
	Create *jetstream.ConsumerConfig

	pace pace
}

// pace is how often things that are not settings happen; tests have another one.
type pace struct {
	tick  time.Duration // between looks at what has waited too long
	probe time.Duration // between looks at the durable consumer
	away  time.Duration // for which a message stays away that is given back to make room
	gap   time.Duration // how long, beside AckWait, its place in its key is kept
	// fetch is how long a fetch waits for messages. A stop waits for it: a message on its way to a fetch
	// that is cut off would come again after AckWait alone, behind those that are given back.
	fetch  time.Duration
	answer time.Duration // bounds a question to the server
}

func usual() pace {
	return pace{
		tick: time.Second, probe: 5 * time.Second, away: 5 * time.Second, gap: 15 * time.Second,
		fetch: time.Second, answer: 5 * time.Second,
	}
}

// complete fills in what is not set, and reports all that is wrong. letters is the subject of dead
// letters, empty for none.
func (c *Config) complete(stream, durable string, handler inbox.Handler) (letters string, wrong *consumer.Problems) {
	wrong = consumer.Complete("natsconsumer", &c.ConsumerConfig, handler, durable, stream)
	wrong.If(!legalName(stream), "%.40q is no name of a stream: give one without blanks, dots, * and >", stream)
	wrong.If(!legalName(durable), "%.40q is no name of a durable consumer: give one without blanks, dots, * and >", durable)
	if c.DeadLetters != nil {
		letters = c.DeadLetters(stream)
		wrong.If(letters == "" || strings.ContainsAny(letters, " \t\r\n*>"), "DeadLetters: %.40q is no subject: give one without blanks, * and >", letters)
	}
	if c.Create != nil {
		create := *c.Create
		create.BackOff, create.FilterSubjects = slices.Clone(create.BackOff), slices.Clone(create.FilterSubjects)
		create.PriorityGroups, create.Metadata = slices.Clone(create.PriorityGroups), maps.Clone(create.Metadata)
		c.Create = &create
	}
	if c.pace == (pace{}) {
		c.pace = usual()
	}
	return letters, wrong
}

// maxName is what the server takes.
const maxName = 255

func legalName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsAny(name, " \t\r\n.*>/\\")
}
