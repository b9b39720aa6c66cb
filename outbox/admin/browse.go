package admin

import (
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// A Count is a number of rows that may have been too many to count.
type Count struct {
	N int64
	// More is true when counting stopped at N.
	More bool
}

// BrokerOverview is where one broker stands.
type BrokerOverview struct {
	Broker string
	// Counts by status; those of rows that are deferred are in theirs, too.
	Counts map[outbox.Status]Count
	// Deferred rows wait out of the way of claims, for a time or for an earlier one of their key.
	Deferred Count
	// BlockedKeys are the ordering keys that wait for an operator (on_abandon: block), in each priority
	// class, and Held the rows behind them.
	BlockedKeys, Held Count
	// Scheduled rows are not to be sent before a time that lies ahead (available_at).
	Scheduled Count
	// Unacknowledged are the abandoned rows that no operator has acknowledged
	// ([outbox.LastError.Acknowledged]), among the newest ones.
	Unacknowledged Count
	// OldestPending is the age of the oldest row that is not finished; 0 when there is none.
	OldestPending time.Duration
	// Lag is how long the first rows that are due have been waiting: see [admin.Backlog].
	Lag time.Duration
	// LastPublished is when a row was published last; zero where none is there any more.
	LastPublished time.Time
	// LastError of the row that failed last among the unfinished and abandoned ones; nil when there
	// is none.
	LastError *outbox.LastError
}

// A Record is one row as people look at it.
type Record struct {
	ID                int64
	MessageID, Broker string
	Status            outbox.Status
	// State says what happens to an open row next. It is that of a relay that keeps order, and which
	// has a claim's view of the row's ordering key: other rows of the key are looked for among the
	// first 1,000 rows of the shard that are not deferred, so that a row far behind these may count as
	// due although it is behind another one. Unconfigured is set where the configuration is known
	// ([Administration.Know]), unavailable never. It is empty for a finished row, and for one that
	// another transaction was writing just then.
	State                                outbox.State
	Stream, Type, OrderingKey            string
	Shard, Priority                      int
	Deferred                             bool // deferred: out of the way of claims
	ContentType                          string
	AggregateType, AggregateID           string
	CorrelationID, CausationID, TenantID string
	Attempts, Crashes                    int
	CreatedAt                            time.Time
	AvailableAt, ExpiresAt               time.Time // zero: none
	LockedUntil, PublishedAt, FinishedAt time.Time // zero: none
	LockedBy, BrokerMessageID            string
	// LastError is nil where the row has none, or one that is no JSON.
	LastError *outbox.LastError
	// Deferral tells for what an open row waits among the key blocks, deferred or not; nil where it
	// waits for none, or where what it waited for has just gone.
	Deferral *Deferral
	// PayloadBytes is the payload's size. Payload and Headers (JSON text) are there only in what
	// [Browser.Message] returns, and Payload is nil there, too, where it has more than MaxShownBytes.
	PayloadBytes int
	Payload      []byte
	Headers      string
}

// How much people are shown of one message: the payloads of no more bytes, and the rows of so many
// brokers. What more there is must not take the process that shows it with it.
const (
	MaxShownBytes = 1 << 20
	MaxShownRows  = 100
)

// MaxStrangers is how many brokers that the configuration does not have are distinguished, the
// first by name.
const MaxStrangers = 20

// OtherBrokers is the name under which [Administration.Counts] has the sum of further ones.
const OtherBrokers = "(others)"

// A Deferral is why a row waits, since when and until when.
type Deferral struct {
	// Reason is backoff, or operator: an abandoned message blocks its key.
	Reason string
	// MessageID of the row that waits itself: this one, or an earlier one of its key, which has to
	// be done first.
	MessageID string
	// Since when that row waits, by the database's clock.
	Since time.Time
	// Until when that row waits; zero where an operator must act (Reason is abandoned), or where it
	// waits no more and later rows of its key follow as soon as it is done.
	Until time.Time
}

// A ListRequest asks for one page.
type ListRequest struct {
	// Broker and Status are required.
	Broker string
	Status outbox.Status
	// Filter says which of the rows are listed, by Type, Key, Aggregate, Correlation, Tenant,
	// ErrorClass, Since and Until. Deferred rows are listed in their status like all others.
	Filter Filter
	// After is where the page before ended; zero = the first page.
	After Position
	// Limit is the most rows to return, at least 1, and Scan the most to look at, at least Limit.
	Limit, Scan int
}

// A Position is a place in a list, which is ordered by time and id, both descending. Time is zero
// where the status is not terminal, and ID is 0 at its beginning. Broker and Status tell which list
// it is, where a search within lists ([FindRequest.Filter]) goes through several.
type Position struct {
	Time   time.Time
	ID     int64
	Broker string
	Status outbox.Status
}

// A List is one page.
type List struct {
	Records []Record
	// Next is where the next page begins; zero = there is none. A page may be empty and have a next
	// one, where the rows that were looked at did not match.
	Next Position
	// Scanned is how many rows were looked at.
	Scanned int
}

// A KeyBlock is an ordering key whose rows wait for one of them. Order is kept within a priority class:
// a key with rows in two classes can have a block in each, and is listed twice then.
type KeyBlock struct {
	Broker, Key string
	// Class is the priority class of all these rows.
	Class outbox.Class
	// MessageID of the row for which the others wait, and its Status. Reason is backoff or operator.
	MessageID string
	Status    outbox.Status
	Reason    string
	// Since when it waits, and Until when: zero where an operator must act.
	Since, Until time.Time
	// Followers are the rows that wait for it.
	Followers Count
	LastError *outbox.LastError
}

// KeyBlocks are ordering keys that wait, and how many there are of them.
type KeyBlocks struct {
	// Keys, as many as were asked for: those that wait for an operator first, and of these, as of the
	// others, those with the most followers, then the oldest.
	Keys []KeyBlock
	// Waiting counts all keys that wait, and Blocked those of them that wait for an operator.
	Waiting, Blocked KeyCount
}

// A KeyCount is a number of ordering keys, and of the rows that wait behind them.
type KeyCount struct{ Keys, Rows Count }
