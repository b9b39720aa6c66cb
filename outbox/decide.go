package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// LastError is what the last_error column holds.
type LastError struct {
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

// maxErrorBytes bounds the text kept in a row.
const maxErrorBytes = 2000

func (e LastError) encode() string {
	e.Message = strings.ToValidUTF8(strings.ReplaceAll(e.Message, "\x00", ""), "\uFFFD")
	if len(e.Message) > maxErrorBytes {
		e.Message = strings.ToValidUTF8(e.Message[:maxErrorBytes], "") + " ..."
	}
	text, err := json.Marshal(e)
	if err != nil { // a struct of plain fields always encodes, but for years beyond 9999
		return `{"class":"` + e.Class + `"}`
	}
	return string(text)
}

// A Decider turns what happened to a claimed row into its outcome. It is a pure function of its arguments but for the
// jitter of Retry.
type Decider struct {
	Retry Retry
}

// BeforeSend decides about rows that must not be sent: malformed, expired, or out of attempts because their owners
// crashed. ok is true when the row is to be sent, and then outgoing is set.
func (d Decider) BeforeSend(m *Message, now time.Time) (outgoing brokers.Message, outcome Outcome, ok bool) {
	abandon := func(class, text string) (brokers.Message, Outcome, bool) {
		last := LastError{Class: class, Message: text, At: now.UTC(), Attempt: m.Attempts}
		return brokers.Message{}, Outcome{ID: m.ID, Status: StatusAbandoned, LastError: last.encode(), Attempts: m.Attempts}, false
	}
	outgoing, err := m.Outgoing()
	switch {
	case err != nil:
		return abandon(ClassMalformed, err.Error())
	case m.Expired:
		outgoing, outcome, ok = abandon(ClassExpired, "the message's time to live had passed before it could be delivered")
		outcome.KeyGoesOn = true // it expired by its own contract
		return outgoing, outcome, ok
	case m.Attempts >= d.Retry.MaxAttempts && m.Crashes > 0:
		return abandon(ClassCrashed, fmt.Sprintf("its worker stopped without a word %d times while it held this message, the last times this message alone", m.Crashes))
	case m.Attempts >= d.Retry.MaxAttempts:
		return abandon(ClassAttempts, fmt.Sprintf("%d attempts were spent and max_attempts is now %d", m.Attempts, d.Retry.MaxAttempts))
	}
	return outgoing, Outcome{}, true
}

// AfterSend decides about a row whose publish failed with err.
func (d Decider) AfterSend(m *Message, err error, now time.Time) Outcome {
	class, _ := brokers.Classify(err)
	last := LastError{Class: string(class), Message: err.Error(), At: now.UTC(), Attempt: m.Attempts + 1}
	outcome := Outcome{ID: m.ID, LastError: last.encode(), Attempts: m.Attempts}
	switch class {
	case brokers.ClassPermanent:
		outcome.Status, outcome.Spent, outcome.Attempts = StatusAbandoned, true, m.Attempts+1
	case brokers.ClassNotSent:
		return d.Release(m) // nothing happened to it: what its last error was still stands
	case brokers.ClassUnavailable:
		outcome.Status = released(m)
	default: // retryable
		outcome.Spent, outcome.Attempts = true, m.Attempts+1
		if m.Attempts+1 >= d.Retry.MaxAttempts {
			outcome.Status = StatusAbandoned
			break
		}
		outcome.Status = StatusFailed
		outcome.Delay = d.Retry.Delay(m.Attempts + 1)
	}
	return outcome
}

// Release gives a row back as it was.
func (d Decider) Release(m *Message) Outcome {
	return Outcome{ID: m.ID, Status: released(m), Attempts: m.Attempts}
}

// released is the status of a row that goes back unsent: what it was before it was claimed.
func released(m *Message) Status {
	if m.Attempts > 0 {
		return StatusFailed
	}
	return StatusPending
}
