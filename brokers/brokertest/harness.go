// Package brokertest holds the conformance suite of brokers: what [brokers.Broker] promises in
// words, as tests. An implementation runs it in a test of its own:
//
//	func TestConformance(t *testing.T) {
//		brokertest.Run(t, brokertest.Harness{Open: ..., Received: ..., Destination: ...})
//	}
//
// The suite asks what consumers see, never how the implementation works.
package brokertest

import (
	"cmp"
	"testing"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// Harness is how the suite reaches one implementation and the server behind it. The functions of
// the first group are required; cases that need one of the others are skipped, with a word, when it
// is nil. The suite calls them from one goroutine at a time.
type Harness struct {
	// Open returns a new broker for the server of this harness. The suite closes it. Several may be
	// open at once.
	Open func(t *testing.T) brokers.Broker
	// Destination returns the name of a destination that exists, is empty, and was not returned
	// before.
	Destination func(t *testing.T) string
	// Received returns all that consumers of the destination were given so far, in that order.
	// Fields that do not travel (the ordering key and the priority, mostly) may be left empty; the
	// order of attributes does not matter.
	Received func(t *testing.T, destination string) []brokers.Message

	// OmitsText is true for a broker that takes only some texts as names and values of attributes,
	// and leaves out, and names, the others. Otherwise each text of the suite has to arrive.
	OmitsText bool
	// Refuse makes the server refuse the message with this id, each time it is sent, until restore
	// is called; other messages are not to be touched. The class of the error is the
	// implementation's choice, but it has to be the message's own (permanent or retryable).
	Refuse func(t *testing.T, id string) (restore func())
	// RefusesElsewhere is true where no server refuses a message for itself, so that Refuse has it sent
	// to a destination of its own that takes none: the class may then be unavailable, for that one.
	RefusesElsewhere bool
	// Stop takes the server away from brokers that are open, and Start brings it back at the same
	// address, with all the messages that it had confirmed.
	Stop, Start func(t *testing.T)
	// OutByDestination is true where each destination is on one of several servers, so that an outage,
	// even one of all of them, is that of destinations.
	OutByDestination bool

	// OpenThroughNetwork returns a new broker like Open, but one that reaches the server through
	// Network alone. What it sends is seen by Received as soon as it was confirmed. Faults of the
	// network are no message's fault: their class is unavailable.
	OpenThroughNetwork func(t *testing.T) brokers.Broker
	Network            Network

	// Patience bounds every wait for something that has to happen; it matters only where something
	// is broken. Default 2 minutes.
	Patience time.Duration
}

// Run runs the suite, each case as a subtest. Random choices come from a seed that is logged;
// FANOUT_TEST_SEED repeats a run.
func Run(t *testing.T, harness Harness) {
	t.Helper()
	if harness.Open == nil || harness.Destination == nil || harness.Received == nil {
		t.Fatal("brokertest: Open, Destination and Received of the harness are required")
	}
	harness.Patience = cmp.Or(harness.Patience, defaultPatience)
	s := &suite{Harness: harness, random: seeded(t)}
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"RoundTrip", s.roundTrip},
		{"Bulk", s.bulk},
		{"Empty", s.empty},
		{"TextAndBytes", s.textAndBytes},
		{"OptionalFields", s.optionalFields},
		{"Signature", s.signature},
		{"LongestKey", s.longestKey},
		{"DuplicateID", s.duplicateID},
		{"VeryLargeBulk", s.veryLargeBulk},
		{"Order", s.order},
		{"OrderAcrossDestinations", s.orderAcrossDestinations},
		{"HeadFails", s.headFails},
		{"HeadFailsForAnotherDestination", s.headFailsForAnotherDestination},
		{"PartialFailure", s.partialFailure},
		{"Oversize", s.oversize},
		{"ContextEndedBefore", s.contextEndedBefore},
		{"ContextEndsMeanwhile", s.contextEndsMeanwhile},
		{"Concurrent", s.concurrent},
		{"PublishAfterClose", s.publishAfterClose},
		{"CloseWhilePublishing", s.closeWhilePublishing},
		{"Ping", s.ping},
		{"CheckDestination", s.checkDestination},
		{"Outage", s.outage},
		{"OutageWhilePublishing", s.outageWhilePublishing},
		{"SlowServer", s.slowServer},
		{"Network", s.network},
	} {
		t.Run(c.name, c.run)
	}
}
