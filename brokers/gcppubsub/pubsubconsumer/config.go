package pubsubconsumer

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// The defaults of what Pub/Sub's consumers have of their own.
const (
	DefaultLease        = 10 * time.Second
	DefaultMaxExtension = time.Hour
)

// Pub/Sub's bounds of an ack deadline.
const (
	minLease = 10 * time.Second
	maxLease = 10 * time.Minute
)

// Config is what a [Consumer] is made of, besides its arguments. The zero value has all defaults.
//
// As much again as MaxOutstandingMessages and MaxOutstandingBytes can be on its way in the buffers of
// Google's client. DeadLetters gives a topic, by its id or in full.
type Config struct {
	inbox.ConsumerConfig

	// Lease is how long a message is this process's at a time; it is extended, five seconds before its
	// end, while the process lives (MinDurationPerAckExtension and MaxDurationPerAckExtension of
	// Google's client). What a killed process had claimed comes again when the lease ends. 10 s to
	// 10 min; default 10 s, as a longer one leaves no more time to extend it. It takes precedence over
	// the ack deadline of the subscription.
	Lease time.Duration
	// MaxExtension bounds how long a message stays claimed, with all its attempts. One whose next
	// attempt would be later is given back to Pub/Sub, which delivers it again. At least the lease;
	// default 1 h.
	MaxExtension time.Duration
}

const legalID = `[a-zA-Z][a-zA-Z0-9\-_.~+%]{2,254}$`

var (
	legalSubscription = regexp.MustCompile(`^projects/[a-z0-9][a-z0-9.:\-]*/subscriptions/` + legalID)
	legalTopic        = regexp.MustCompile(`^projects/[a-z0-9][a-z0-9.:\-]*/topics/` + legalID)
)

// fullName of a resource of a project: kind is "subscriptions" or "topics".
func fullName(project, kind, name string) string {
	if strings.HasPrefix(name, "projects/") {
		return name
	}
	return "projects/" + project + "/" + kind + "/" + name
}

// complete fills in what is not set, and reports all that is wrong. letters is the topic of dead letters
// in full, empty for none.
func (c *Config) complete(project, subscription string, handler inbox.Handler) (letters string, wrong *consumer.Problems) {
	wrong = consumer.Complete("pubsubconsumer", &c.ConsumerConfig, handler, subscription[strings.LastIndex(subscription, "/")+1:], subscription)
	wrong.If(!legalSubscription.MatchString(subscription),
		"%q is no subscription: give its id, such as orders-billing, or projects/PROJECT/subscriptions/ID", subscription)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.MaxExtension = cmp.Or(c.MaxExtension, DefaultMaxExtension)
	wrong.If(c.Lease < minLease || c.Lease > maxLease, "Lease is %s: Pub/Sub takes %s to %s", c.Lease, minLease, maxLease)
	wrong.If(c.MaxExtension < c.Lease, "MaxExtension is %s, less than the lease of %s: give more", c.MaxExtension, c.Lease)
	if c.DeadLetters != nil {
		letters = fullName(project, "topics", c.DeadLetters(subscription))
		wrong.If(!legalTopic.MatchString(letters), "DeadLetters: %q is no topic: give its id, such as orders-dead, or projects/PROJECT/topics/ID", letters)
	}
	return letters, wrong
}
