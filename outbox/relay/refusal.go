package relay

import (
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Refusals of which it is unknown whose they are (see brokers.Refused). A refusal is the message's own
// where others get through that were sent after it was refused before; the endpoint with the wrong
// secret, or the topic with the wrong schema, lets none through. Else it is an outage, and the message
// is kept. One for which nothing can speak, since no other is sent there, spends its attempts.

// A refused message is what is known of one that was refused before.
type refused struct {
	since  time.Time // when it was refused last
	passed time.Time // when the last call began in which another message of the place was delivered
	// alone is true where all that the place has refused since it delivered something is this message.
	alone bool
	// proven is true where it was refused beside others that were delivered.
	proven bool
}

// A place is what refuses messages: a broker as a whole, or one of its destinations.
type place struct {
	scope       brokers.Scope
	destination string
}

// placeOf is what has refused a message; ok is false for every other result.
func placeOf(m *driver.Message, err error) (at place, ok bool) {
	if err == nil {
		return place{}, false
	}
	scope, ok := brokers.Refusal(err)
	if scope == brokers.ScopeBroker {
		return place{scope: scope}, ok
	}
	return place{brokers.ScopeDestination, m.Stream}, ok
}

// covers reports whether a message is sent to the place.
func (at place) covers(m *driver.Message) bool {
	return at.scope == brokers.ScopeBroker || m.Stream == at.destination
}

// delivered reports whether a call has delivered a message to the place.
func (at place) delivered(call *Call) bool {
	for i, m := range call.Messages {
		if call.Results[i].Err == nil && at.covers(m) {
			return true
		}
	}
	return false
}

// sole reports whether a call has only one message for the place, and no other is known to wait for
// it: whatever waits behind others may, but not behind a message without a key.
func (at place) sole(call *Call, m *driver.Message) bool {
	for _, other := range call.Messages {
		if other != m && at.covers(other) {
			return false
		}
	}
	if call.batch == nil {
		return true
	}
	for i := range call.batch.Messages {
		if other := &call.batch.Messages[i]; other.ID != m.ID && at.covers(other) {
			return false
		}
	}
	waiting := call.batch.Waiting > 0 || call.batch.Blocked
	return !waiting || m.OrderingKey == "" && at.scope == brokers.ScopeDestination
}

// judgeRefusal says what it means that a message of a call was refused at a place.
func judgeRefusal(call *Call, i int, at place, past evidence, maxAttempts int) classified {
	m, err := call.Messages[i], call.Results[i].Err
	before, known := past.refused[m.ID]
	delivered := at.delivered(call)
	switch {
	case known && (before.passed.After(before.since) || delivered && call.Began.After(before.since)):
		return classifyOne(m, err, maxAttempts)
	case delivered: // perhaps before the place began to refuse
		return classified{verdictRelease, scopeMessage, err}
	case before.alone && (before.proven || at.sole(call, m)):
		one := classifyOne(m, brokers.Retryable(err), maxAttempts)
		one.err = err
		return one
	default:
		if refusal, ok := err.(*brokers.Error); ok { //nolint:errorlint // whose class it has not
			err = refusal.Err
		}
		return classified{verdictRelease, at.scope, brokers.Unavailable(at.scope, err)}
	}
}

// refusals is the part of a history that remembers refused messages.
type refusals struct {
	known  map[int64]refused     // without what is the place's, by row id
	passed map[place]time.Time   // when the last call began that delivered a message there
	alone  map[place]soleRefusal // what a place has refused since it delivered something
}

// A soleRefusal is the first message that a place has refused.
type soleRefusal struct {
	id     int64
	others bool // it was not the only one
}

// of is what is known of the messages of a call that were refused before; nil, as a rule: of none.
func (r *refusals) of(call *Call) (all map[int64]refused) {
	if len(r.known) == 0 {
		return nil
	}
	for i, m := range call.Messages {
		at, is := placeOf(m, call.Results[i].Err)
		one, known := r.known[m.ID]
		if !is || !known {
			continue
		}
		if all == nil {
			all = map[int64]refused{}
		}
		one.passed, one.alone = r.passed[at], r.alone[at] == soleRefusal{id: m.ID}
		all[m.ID] = one
	}
	return all
}

// learn remembers what a call has shown.
func (r *refusals) learn(call *Call, c *classification) {
	for i, m := range call.Messages {
		at, is := placeOf(m, call.Results[i].Err)
		if is {
			r.note(m, at, c.messages[i].scope == scopeMessage)
		}
		if verdict := c.messages[i].verdict; verdict == verdictPublished || verdict == verdictAbandon {
			delete(r.known, m.ID)
		}
	}
	for at, passed := range r.passed {
		if at.delivered(call) {
			delete(r.alone, at)
			if call.Began.After(passed) {
				r.passed[at] = call.Began
			}
		}
	}
}

// note notes that a message was refused, beside others or not. Where there are too many, all begins
// anew.
func (r *refusals) note(m *driver.Message, at place, proven bool) {
	if r.known == nil || len(r.known) >= maxHistory || len(r.passed) >= maxHistory {
		*r = refusals{known: map[int64]refused{}, passed: map[place]time.Time{}, alone: map[place]soleRefusal{}}
	}
	one := r.known[m.ID]
	r.known[m.ID] = refused{since: time.Now(), proven: one.proven || proven}
	if _, known := r.passed[at]; !known {
		r.passed[at] = time.Time{}
	}
	first, refusedBefore := r.alone[at]
	if !refusedBefore {
		first.id = m.ID
	}
	first.others = first.others || first.id != m.ID
	r.alone[at] = first
}
