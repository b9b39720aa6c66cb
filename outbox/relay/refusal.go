package relay

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Refusals that do not say whose they are (see brokers.Refused). Whoever has the wrong secret, or the
// wrong schema, refuses every message, so a refusal is the message's own only where it is proven:
// others were delivered in the same call, or before and after it while nothing else was refused. A
// proven one is charged where it is refused again. Without proof it is an outage and costs nothing,
// but for a message beside which none is open in the database, which all relays share: nothing else
// could ever speak for it.

// A refused message is what is known of one that was refused before.
type refused struct {
	since  time.Time // when it was refused last
	lone   bool      // nothing else was, whose fault was unknown, between a delivery there and then
	proven bool
	broke  bool // the implementation broke down at it

	// Of the place that refused it, as it is now.
	passed time.Time // when the last call began in which another message was delivered
	quiet  bool      // it has refused no other, whose fault is unknown, since it delivered something
	alone  bool      // no other message for it is open
}

// isProven reports whether the refusals of a message are its own fault.
func (r refused) isProven() bool { return r.proven || r.lone && r.passed.After(r.since) }

// A place is what refuses messages: a broker as a whole, one of its destinations, or a partition of one.
// Which partition that is only the adapter knows.
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
	switch scope {
	case brokers.ScopeBroker:
		return place{scope: scope}, ok
	case brokers.ScopePartition:
		return place{scope, m.Stream}, ok
	default:
		return place{brokers.ScopeDestination, m.Stream}, ok
	}
}

// covers reports whether a message may be sent to the place.
func (at place) covers(m *driver.Message) bool {
	return at.scope == brokers.ScopeBroker || m.Stream == at.destination
}

// passes reports whether the place is known to have taken a message that was delivered: of a partition
// that is not known.
func (at place) passes(m *driver.Message) bool {
	return at.scope != brokers.ScopePartition && at.covers(m)
}

// sole reports whether a call, and the batch that it is of, have only one message for the place.
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
	return true
}

// askAlone asks the database whether messages that the last call has refused again are alone with that,
// unless they are charged in any case. Few are asked for: each has a place for itself in its batch.
func (d *delivery) askAlone(ctx context.Context, past *evidence) {
	for i, m := range d.call.Messages {
		before, known := past.refused[m.ID]
		at, is := placeOf(m, d.call.Results[i].Err)
		if !known || !is || before.isProven() && before.quiet || !at.sole(&d.call, m) {
			continue
		}
		before.alone = d.p.alone(ctx, at, m)
		past.refused[m.ID] = before
	}
}

// alone reports whether no other message for a place is open. Where that is unknown, there may be.
func (p *Processor) alone(ctx context.Context, at place, m *driver.Message) bool {
	ctx, cancel := context.WithTimeout(ctx, p.databaseTimeout())
	defer cancel()
	alone, err := p.store.Alone(ctx, p.broker, at.destination, m.ID)
	p.heard(&p.aloneFailing, "look for open rows beside a refused one", err)
	return err == nil && alone
}

// A showing is what a call shows of a place.
type showing struct {
	delivered bool
	doubted   int // messages that it refused, and that are not proven
}

// showings are those of the places that have refused something in a call.
func showings(call *Call, past map[int64]refused) map[place]*showing {
	var all map[place]*showing
	for i, m := range call.Messages {
		at, is := placeOf(m, call.Results[i].Err)
		if !is {
			continue
		}
		if all == nil {
			all = map[place]*showing{}
		}
		if all[at] == nil {
			all[at] = &showing{}
		}
		if !past[m.ID].isProven() {
			all[at].doubted++
		}
	}
	for at, shown := range all {
		for i, m := range call.Messages {
			shown.delivered = shown.delivered || call.Results[i].Err == nil && at.passes(m)
		}
	}
	return all
}

// undisturbed reports whether a place refuses nothing but the message, and what is proven.
func (s *showing) undisturbed(before refused) bool {
	return before.quiet && (s.doubted == 0 || s.doubted == 1 && !before.isProven())
}

// judgeRefusal says what it means that a message of a call was refused at a place.
func judgeRefusal(call *Call, i int, at place, shown *showing, past evidence, maxAttempts int) classified {
	m, err := call.Messages[i], call.Results[i].Err
	before := past.refused[m.ID]
	switch {
	case shown.delivered && before.isProven() && call.Began.After(before.since):
		return classifyOne(m, err, maxAttempts)
	case shown.delivered: // perhaps before the place began to refuse
		return classified{verdict: verdictRelease, scope: scopeMessage, err: err}
	case before.alone, before.isProven() && shown.undisturbed(before):
		one := classifyOne(m, brokers.Retryable(err), maxAttempts)
		one.err, one.alone = err, true
		return one
	default:
		if refusal, ok := err.(*brokers.Error); ok { //nolint:errorlint // whose class it has not
			err = refusal.Err
		}
		return classified{verdict: verdictRelease, scope: at.scope, err: brokers.Unavailable(at.scope, err)}
	}
}

// refusals is the part of a history that remembers refused messages.
type refusals struct {
	keep   time.Duration       // messages that are not refused again within it are forgotten
	tidied time.Time           // when that was done last
	known  map[int64]refused   // by row id
	passed map[place]time.Time // when the last call began that delivered a message there
	doubts map[place]doubt     // since it delivered something
}

// A doubt is about a place that refuses messages which are not proven.
type doubt struct {
	id      int64 // of the last one
	several bool  // there were others
}

// maxRefused bounds the messages in it. Those forgotten are noticed again.
const maxRefused = 10_000

// quiet reports whether a place has refused no message but one since it delivered something, which is
// never known of a partition. What was discarded, or delivered by another process, counts until then:
// that delays a proof, and no more.
func (r *refusals) quiet(at place, id int64) bool {
	d, doubted := r.doubts[at]
	return at.scope != brokers.ScopePartition && (!doubted || d.id == id && !d.several)
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
		one.passed, one.quiet = r.passed[at], r.quiet(at, m.ID)
		all[m.ID] = one
	}
	return all
}

// learn remembers what a call has shown.
func (r *refusals) learn(call *Call, c *classification) {
	if len(r.passed) == 0 && len(c.showings) == 0 { // as a rule
		return
	}
	r.tidy()
	streams := map[string]bool{}
	for i, m := range call.Messages {
		if call.Results[i].Err == nil {
			streams[m.Stream] = true
		}
		if at, is := placeOf(m, call.Results[i].Err); is {
			r.note(m, at, c.showings[at], errors.As(call.Results[i].Err, new(*breakdown)))
		}
		if verdict := c.messages[i].verdict; verdict == verdictPublished || verdict == verdictAbandon {
			delete(r.known, m.ID)
		}
	}
	for at, passed := range r.passed {
		if at.scope == brokers.ScopeDestination && streams[at.destination] || at.scope == brokers.ScopeBroker && len(streams) > 0 {
			delete(r.doubts, at)
			if call.Began.After(passed) {
				r.passed[at] = call.Began
			}
		}
	}
}

// tidy forgets messages that do not come again: another process has delivered them, or an operator has
// removed them.
func (r *refusals) tidy() {
	now := time.Now()
	if len(r.known) == 0 || now.Sub(r.tidied) < r.keep/8 {
		return
	}
	r.tidied = now
	maps.DeleteFunc(r.known, func(_ int64, one refused) bool { return now.Sub(one.since) > r.keep })
}

// note notes that a message was refused. Where there are too many, all begins anew.
func (r *refusals) note(m *driver.Message, at place, shown *showing, broke bool) {
	before, known := r.known[m.ID]
	if _, seen := r.passed[at]; r.known == nil || !known && len(r.known) >= maxRefused || !seen && len(r.passed) >= maxHistory {
		r.known, r.passed, r.doubts = map[int64]refused{}, map[place]time.Time{}, map[place]doubt{}
	}
	before.passed, before.quiet = r.passed[at], r.quiet(at, m.ID)
	proven := shown.delivered || before.isProven()
	r.known[m.ID] = refused{since: time.Now(), lone: shown.undisturbed(before), proven: proven, broke: broke}
	r.passed[at] = before.passed
	if proven {
		return
	}
	d, doubted := r.doubts[at]
	r.doubts[at] = doubt{id: m.ID, several: d.several || doubted && d.id != m.ID}
}
