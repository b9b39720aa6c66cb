package outbox

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Status is what has happened to one row: one message on its way to one broker. What happens next to
// an open row is its [State].
//
//	pending ──claim──▶ processing ──delivered──▶ published
//	                    │    ▲
//	            retryable    │ claim, once the backoff is over
//	                    ▼    │
//	                    failed ──▶ (claimed again)
//	processing ──permanent, expired, or attempts used up──▶ abandoned
//	processing ──released, or the lease ran out──▶ claimable again
//
// published and abandoned are terminal: only an operator's action leaves them.
type Status string

// The statuses of a row, as they stand in the status column.
const (
	StatusPending    Status = "pending"
	StatusProcessing Status = "processing"
	StatusPublished  Status = "published"
	StatusFailed     Status = "failed"
	StatusAbandoned  Status = "abandoned"
)

// Statuses lists all of them in the order in which a row can pass through them.
func Statuses() []Status {
	return []Status{StatusPending, StatusProcessing, StatusFailed, StatusPublished, StatusAbandoned}
}

// Terminal reports whether the row is done: published or abandoned.
func (s Status) Terminal() bool { return s == StatusPublished || s == StatusAbandoned }

// Valid reports whether s is one of the five statuses.
func (s Status) Valid() bool { return slices.Contains(Statuses(), s) }

// LastError is what the last_error column holds.
type LastError struct {
	// Acknowledged is true where an operator has seen that the row is abandoned: it counts as
	// abandoned, and raises no alert any more. The next error of the row has no such mark. It is the
	// first member of the JSON, where statements look for it.
	Acknowledged bool `json:"acknowledged,omitempty"`
	// Class is a brokers.Class, or one of malformed, expired, crashed, attempts, operator.
	Class string `json:"class"`
	// Message is the error's text, cut to a bounded length.
	Message string `json:"message"`
	// At is when it happened, by the worker's clock; by the database's in class operator.
	At time.Time `json:"at"`
	// Attempt counts from 1; 0 = nothing was sent.
	Attempt int `json:"attempt"`
}

// Classes of LastError beside those of package brokers.
const (
	ClassMalformed = "malformed" // the row cannot be turned into a message
	ClassExpired   = "expired"   // the TTL has passed
	ClassCrashed   = "crashed"   // its owner died each time it held this row alone
	ClassAttempts  = "attempts"  // its attempts were used up under a higher maximum
)

// maxErrorBytes bounds the text kept in a row. Of a longer one the last tailBytes are kept, too: errors
// end with what can be done about them.
const (
	maxErrorBytes = 2000
	tailBytes     = 500
	errorGap      = " ... "
)

// Encode returns the text for the column, with a message of at most 2,000 bytes: of a longer one its
// beginning and its end.
func (e LastError) Encode() string {
	e.Message = strings.ToValidUTF8(strings.ReplaceAll(e.Message, "\x00", ""), "\uFFFD")
	if n := len(e.Message); n > maxErrorBytes {
		head, tail := e.Message[:maxErrorBytes-tailBytes-len(errorGap)], e.Message[n-tailBytes:]
		e.Message = strings.ToValidUTF8(head, "") + errorGap + strings.ToValidUTF8(tail, "")
	}
	text, err := json.Marshal(e)
	if err != nil { // a struct of plain fields always encodes, but for years beyond 9999
		return `{"class":"` + e.Class + `"}`
	}
	return string(text)
}
