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

// delivery is a message in a broker, as it was read from there.
type delivery struct {
	event   event
	account string
	seq     int64
	message string
	kind    string // the event's type
	at      time.Time
	leaks   []string // what is in it and may not leave
}

// outcome is what a producer wrote down.
type outcome struct {
	outcome   scenario.Outcome // of the first try
	completed bool             // it was found committed later
}

// fact is an event that was committed.
type fact struct {
	account   string
	seq       int64
	published bool
}

// evidence is what was gathered outside of the program under test.
type evidence struct {
	facts      map[event]fact
	outcomes   map[string]outcome // by transaction
	rows       []row
	held       map[string][]delivery          // by broker, in the broker's order
	seen       map[string]map[string]struct{} // by broker: the messages that consumers saw
	consumers  []ConsumerVerdict              // what the inboxes hold
	summed     map[string]map[string]sums     // projections by broker and account
	dropped    map[string]int                 // copies that consumers had handled before, by broker
	watch      []string                       // what the database saw of rows that were treated badly
	faults     []performed
	sessions   int      // of the database that were left in the end
	leaked     []string // goroutines, by process
	crashed    []string // processes
	clocks     []string // that did not show the time they were to show
	ended      int      // processes that left in good order, and looked for goroutines
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
