// Package consumertest holds the conformance suite of consumers: what all of them promise, as tests,
// whatever broker the messages come from. A consumer runs it in a test of its own:
//
//	func TestMain(m *testing.M) { consumertest.Main(m, child) }
//
//	func TestConformance(t *testing.T) {
//		consumertest.Run(t, consumertest.Harness{Source: ...})
//	}
//
// The suite asks what handlers see and what the broker is left with, never how a consumer works.
package consumertest

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/inbox"
)

// Harness is how the suite reaches one kind of consumer, and the broker behind it.
type Harness struct {
	// Source makes a source of messages that is new and empty; required. Each case has its own, and
	// cases run side by side.
	Source func(t *testing.T) *Source
	// Together says that keys keep their order, and are one consumer's at a time, although several
	// consumers read the source. Otherwise the suite asks for order within one consumer alone.
	Together bool
	// AlwaysDeadLetters says that each source has a place for dead letters, so that no message is held.
	AlwaysDeadLetters bool
	// Shuffles says that a server forgets the order of a key when a message is given back or a connection
	// ends, as emulators do: the suite asks for order only where neither happens.
	Shuffles bool
	// OneOfAKey says that the server may deliver no message of a key while an earlier one is not
	// confirmed: one that is held then blocks its key at the server.
	OneOfAKey bool
	// Patience bounds every wait for something that has to happen; it matters only where something
	// is broken. Default 1 min.
	Patience time.Duration
}

// A Source is a stream, queue or topic, and those who consume it as one group. Its functions are
// required unless they say otherwise.
type Source struct {
	// Publish adds messages, in their order, and returns when the broker has confirmed them.
	Publish func(t *testing.T, messages ...Message)
	// PublishForeign adds a message as a program writes it that knows nothing of Fanout: with these
	// flat fields alone, and with the key as the broker's own ordering key, where it has one, or
	// the field ordering_key. A payload that is nil is none at all, where the broker can tell. Nil:
	// cases that need it are skipped, with a word.
	PublishForeign func(t *testing.T, key string, payload []byte, attributes map[string]string)
	// Consumer makes a consumer of the source: one process of the group.
	Consumer func(t *testing.T, handler inbox.Handler, settings *Settings) Consumer
	// Unconfirmed is how many messages the broker would deliver to a new consumer of the group if
	// all that it has now were gone, claimed ones included. It may be late, and it may be too many
	// where the broker confirms in order.
	Unconfirmed func(t *testing.T) int
	// DeadLetters are the messages among the dead letters.
	DeadLetters func(t *testing.T) []DeadLetter
	// Network lies between the broker and consumers with [Settings.ThroughNetwork]. Nil: cases that
	// need it are skipped, with a word.
	Network Network
	// Expire lets claims of consumers that are gone end at once, where it can be done; nil where
	// they end by themselves soon enough.
	Expire func(t *testing.T)
	// Lease is how long a claim lasts that its consumer does not renew; 0 where it has no such end, or none
	// that a test can wait for: then the case that outlasts it is skipped.
	Lease time.Duration
	// Child is what the function given to [Main] needs to know of this source. Empty: the case that
	// kills a process is skipped.
	Child string
}

// A Consumer is what the suite tests.
type Consumer interface {
	Run(ctx context.Context) error
	Stats() inbox.ConsumerStats
}

// A Network can be made ill. Faults hold for connections that are open and for those to come.
type Network interface {
	// Reset breaks every connection as soon as something is sent over it.
	Reset(t testing.TB)
	// BlackHole swallows all that the server says, without a word.
	BlackHole(t testing.TB)
	// Heal ends the fault.
	Heal(t testing.TB)
}

// Settings of a consumer.
type Settings struct {
	// ConsumerConfig is the consumer's, without DeadLetters.
	inbox.ConsumerConfig
	// HasDeadLetters says that there is a place for them, which the harness names.
	HasDeadLetters bool
	// ThroughNetwork says that the broker is reached through [Source.Network] alone.
	ThroughNetwork bool
}

// A Message is one that the suite publishes.
type Message struct {
	ID, Type string
	// Key is the ordering key; empty for none.
	Key     string
	Payload []byte
}

// A DeadLetter is a message that a consumer has put away.
type DeadLetter struct {
	ID      string
	Key     string
	Payload []byte
	// Reason and Attempts are what the consumer has added: the last error, and how often it had
	// failed.
	Reason, Attempts string
}

// Run runs the suite, each case as a parallel subtest.
func Run(t *testing.T, harness Harness) {
	t.Helper()
	if harness.Source == nil {
		t.Fatal("consumertest: Source of the harness is required")
	}
	harness.Patience = cmp.Or(harness.Patience, time.Minute)
	s := &suite{Harness: harness}
	for _, c := range []struct {
		name string
		run  func(*testing.T, *Source)
	}{
		{"OrderAcrossFailures", s.orderAcrossFailures},
		{"KeysBesideEachOther", s.keysBesideEachOther},
		{"ConfirmedAfterwards", s.confirmedAfterwards},
		{"Duplicates", s.duplicates},
		{"Poison", s.poison},
		{"Held", s.held},
		{"Foreign", s.foreign},
		{"ForeignSkipped", s.foreignSkipped},
		{"ForeignKept", s.foreignKept},
		{"ForeignHeld", s.foreignHeld},
		{"Decoder", s.decoder},
		{"Signatures", s.signatures},
		{"HotKey", s.hotKey},
		{"OthersPassAHeldMessage", s.othersPassAHeldMessage},
		{"HandlerHangs", s.handlerHangs},
		{"HandlerOutlastsClaim", s.handlerOutlastsClaim},
		{"StopUnderLoad", s.stopUnderLoad},
		{"ShutdownTimeout", s.shutdownTimeout},
		{"Rebalance", s.rebalance},
		{"KilledWhileHandling", s.killedWhileHandling},
		{"CrashBeforeConfirmation", s.crashBeforeConfirmation},
		{"ConnectionsBreak", s.connectionsBreak},
		{"StartsDuringOutage", s.startsDuringOutage},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, harness.Source(t))
		})
	}
}

// childVariable makes a test program a consumer: its value is [Source.Child].
const childVariable = "FANOUT_TEST_CONSUMER"

// Main runs the tests of a package, and looks for goroutines that are left; or, where the suite has
// started it for that, plays a process that consumes, which ends when it is killed. child makes the
// consumer of a source.
func Main(m *testing.M, child func(source string, handler inbox.Handler) (Consumer, error), options ...goleak.Option) {
	if source := os.Getenv(childVariable); source != "" {
		play(func(handler inbox.Handler) (Consumer, error) { return child(source, handler) })
	}
	goleak.VerifyTestMain(m, options...)
}
