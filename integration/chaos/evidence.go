//go:build unix

package chaos

import (
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// place of an event in its transaction: what all ledgers know it by.
type event struct {
	tx string
	n  int
}

// row is a row of the outbox.
type row struct {
	event    event
	message  string
	broker   string
	status   string
	attempts int
	err      string
}

// delivery is a message as it was read from a broker.
type delivery struct {
	event   event
	account string
	seq     int64
	message string
	kind    string // the event's type
	at      time.Time
	leaks   []string // contents that must not leave
}

// outcome is what a producer recorded.
type outcome struct {
	outcome   scenario.Outcome // of the first try
	completed bool             // found committed by a later attempt
}

// fact is an event that was committed.
type fact struct {
	account   string
	seq       int64
	published bool
}

// evidence is everything recorded outside of the program under test.
type evidence struct {
	brokers    []*broker
	notKept    bool // rows go as they are delivered
	facts      map[event]fact
	outcomes   map[string]outcome // by transaction
	rows       []row
	held       map[string][]delivery             // by broker, in the broker's order
	seen       map[string]map[string]struct{}    // by broker: the messages that consumers saw
	seenAt     map[string]map[string][]time.Time // by broker and message: when its copies were seen, where the broker does not tell
	consumers  []ConsumerVerdict                 // what the inboxes hold
	summed     map[string]map[string]sums        // projections by broker and account
	behind     map[string]int64                  // by broker: events that projections got behind a later one of their account
	dropped    map[string]int                    // duplicates that inboxes dropped, by broker
	watch      []string                          // violations that triggers of the database recorded
	faults     []performed
	sessions   int      // of the database that were open at the end
	leaked     []string // goroutines, by process
	crashed    []string // processes
	clocks     []string // that showed a wrong time
	ended      int      // processes that shut down gracefully and checked their goroutines
	leaseLost  int64
	peakConns  map[string]int   // by process
	peakMemory map[string]int64 // bytes, by process
}

// performed is a fault that happened.
type performed struct {
	Fault
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
}
