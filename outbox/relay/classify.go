package relay

import (
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// Failure classification: what a call to the broker means for each of its messages, and whether a
// failure is the message's, the destination's or the broker's. It is pure: it knows the results and
// what earlier calls have shown, and no clock, lock or database. A delivery does what it says.

// A verdict is what becomes of a message.
type verdict string

const (
	verdictPublished verdict = "published" // the broker has confirmed it
	verdictRetry     verdict = "retry"     // it failed: an attempt is spent, and the row backs off
	verdictAbandon   verdict = "abandon"   // it can never be sent, or its attempts are used up
	verdictRelease   verdict = "release"   // it is not to blame: its row goes back with its attempts
)

// scopeMessage is the scope of a failure that is the message's own. The others are brokers'.
const scopeMessage brokers.Scope = "message"

// classified is what a call means for one message.
type classified struct {
	verdict verdict
	scope   brokers.Scope // whose failure it is; "" where nothing failed
	err     error         // what the row keeps; nil: its last error still stands
	alone   bool          // charged although nothing was delivered: it says nothing about the broker
}

// classification is what a call means.
type classification struct {
	messages []classified // as in the call
	// reached is true when the broker has taken or judged a message.
	reached bool
	// unavailable is why the broker as a whole is unavailable.
	unavailable error
	// alone is the only message that met an outage of the broker, -1 where none or several did;
	// charged is true when that is its own fault.
	alone   int
	charged bool
	// showings are of the places that have refused messages; nil, as a rule: of none.
	showings map[place]*showing
}

// evidence is what earlier calls have shown of a call's first message. One that has met an outage
// of the broker is sent alone.
type evidence struct {
	known bool
	// since is when it first met one, alone in its call to do so.
	since time.Time
	// passed is when the last call began in which a message was delivered.
	passed time.Time
	// refused are the messages of the call that were refused before, by row id.
	refused map[int64]refused
}

// classify says what a call means. An outage is no message's fault and costs no attempt. But where no
// server has said whose it is (see brokers.Unreachable), a message that meets one again although
// others were delivered since, in a call that began after the first time, causes it itself: it resets
// the connection, say. Were it spared, it would be at the head of every probe forever. Where
// several messages of a call meet an outage none is charged: calls shrink until one is alone. The
// result uses the slice.
func classify(call *Call, past evidence, maxAttempts int, messages []classified) classification {
	c := classification{messages: messages[:0], alone: soleOutage(call.Results)}
	c.charged = c.alone == 0 && past.known && past.passed.After(past.since) && brokers.Unanswered(call.Results[0].Err)
	c.showings = showings(call, past.refused)
	out := map[string]bool{} // destinations that proved unavailable
	for i, m := range call.Messages {
		err := call.Results[i].Err
		if c.charged && i == c.alone {
			err = brokers.Retryable(err)
		}
		one := classifyOne(m, err, maxAttempts)
		if at, refused := placeOf(m, err); refused {
			one = judgeRefusal(call, i, at, c.showings[at], past, maxAttempts)
		}
		switch {
		case one.scope == brokers.ScopeBroker:
			c.unavailable = one.err
		case one.scope == brokers.ScopeDestination:
			out[m.Stream] = true
		case one.verdict == verdictRelease && one.scope == "" && out[m.Stream]: // held up by its destination, not by its key
			one.scope = brokers.ScopeDestination
		}
		c.reached = c.reached || one.answered()
		c.messages = append(c.messages, one)
	}
	return c
}

// answered reports whether the broker has taken or judged the message.
func (c *classified) answered() bool {
	return !c.alone && (c.verdict != verdictRelease || c.scope != "" && c.scope != brokers.ScopeBroker)
}

// soleOutage is the only result with an outage of the broker, -1 where there is none or several.
func soleOutage(results []brokers.Result) int {
	sole := -1
	for i := range results {
		if _, scope := brokers.Classify(results[i].Err); scope == brokers.ScopeBroker {
			if sole >= 0 {
				return -1
			}
			sole = i
		}
	}
	return sole
}

// classifyOne is what a result means for its message, whatever the others are.
func classifyOne(m *driver.Message, err error, maxAttempts int) classified {
	switch class, scope := brokers.Classify(err); {
	case class == "":
		return classified{verdict: verdictPublished}
	case class == brokers.ClassNotSent:
		return classified{verdict: verdictRelease}
	case class == brokers.ClassUnavailable:
		return classified{verdict: verdictRelease, scope: scope, err: err}
	case class == brokers.ClassPermanent || m.Attempts+1 >= maxAttempts:
		return classified{verdict: verdictAbandon, scope: scopeMessage, err: err}
	default:
		return classified{verdict: verdictRetry, scope: scopeMessage, err: err}
	}
}

// breakdown is how a broker's implementation does not do what a broker must. It has no class: like each
// such error it is the message's own where others of its destination pass, and else an outage.
type breakdown struct{ what, stack string }

func (b *breakdown) Error() string { return "the broker's implementation " + b.what }

// excuse makes unsent of what failed because we stopped waiting, at the end of a shutdown or of the
// lease: neither the message nor the broker is to blame. Should it have arrived all the same, it is
// sent again under the same id.
func excuse(results []brokers.Result) {
	for i := range results {
		switch class, _ := brokers.Classify(results[i].Err); class {
		case brokers.ClassRetryable, brokers.ClassUnavailable:
			results[i].Err = brokers.NotSentBecause(results[i].Err)
		default:
		}
	}
}

// outcome is what is written of a message that was not published.
func (c *classified) outcome(m *driver.Message, retry outbox.Retry, now time.Time) driver.Outcome {
	outcome := driver.Outcome{ID: m.ID, Status: unsent(m), Attempts: m.Attempts}
	if c.err != nil {
		class, _ := brokers.Classify(c.err)
		outcome.LastError = outbox.LastError{Class: string(class), Message: c.err.Error(), At: now.UTC(), Attempt: m.Attempts + 1}.Encode()
	}
	if c.verdict == verdictRelease {
		return outcome
	}
	outcome.Spent, outcome.Attempts = true, m.Attempts+1
	if c.verdict == verdictAbandon {
		outcome.Status = outbox.StatusAbandoned
		return outcome
	}
	outcome.Status, outcome.Delay = outbox.StatusFailed, retry.Delay(m.Attempts+1)
	return outcome
}

// release gives a row back as it was.
func release(m *driver.Message) driver.Outcome {
	return driver.Outcome{ID: m.ID, Status: unsent(m), Attempts: m.Attempts}
}

// unsent is the status of a row that goes back unsent: what it was before it was claimed.
func unsent(m *driver.Message) outbox.Status {
	if m.Attempts > 0 {
		return outbox.StatusFailed
	}
	return outbox.StatusPending
}

// prepare makes of a row what the broker gets. ok is false for a row that must not be sent:
// too large, malformed, expired, or out of attempts. It is abandoned then, with this outcome.
func prepare(m *driver.Message, policy *outbox.Policy, now, claimedAt time.Time) (outgoing brokers.Message, outcome driver.Outcome, ok bool) {
	last, held := outbox.LastError{At: now.UTC(), Attempt: m.Attempts}, now.Sub(claimedAt)
	outgoing, err := m.Outgoing()
	maxAttempts := policy.Retry.MaxAttempts
	switch {
	case m.Unread > 0:
		last.Class = string(brokers.ClassPermanent)
		last.Message = fmt.Sprintf("the payload has %d bytes, and this relay reads no more than %d: raise outbox.max_payload_bytes, or send a reference to the data",
			m.Unread, policy.MaxPayloadBytes)
	case err != nil:
		last.Class, last.Message = outbox.ClassMalformed, err.Error()
	case m.Expired(held):
		last.Class, last.Message = outbox.ClassExpired, "the message's time to live had passed before it could be delivered"
	case m.Attempts >= maxAttempts && m.Crashes > 0:
		last.Class = outbox.ClassCrashed
		last.Message = fmt.Sprintf("its worker stopped without a word %d times while it held this message, the last times this message alone", m.Crashes)
	case m.Attempts >= maxAttempts:
		last.Class, last.Message = outbox.ClassAttempts, fmt.Sprintf("%d attempts were spent and max_attempts is now %d", m.Attempts, maxAttempts)
	default:
		if m.ExpiresIn > 0 {
			outgoing.ExpiresIn = m.ExpiresIn - held
		}
		return outgoing, driver.Outcome{}, true
	}
	// One that expired did so by its own contract: its key goes on.
	return outgoing, driver.Outcome{ID: m.ID, Status: outbox.StatusAbandoned, LastError: last.Encode(), Attempts: m.Attempts, KeyGoesOn: last.Class == outbox.ClassExpired}, false
}
