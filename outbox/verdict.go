package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// complete records the outcome of one message that was handed to the broker.
func (d *delivery) complete(m *Message, result brokers.Result) {
	to := d.to(m.Stream)
	if result.Err == nil {
		d.reached, to.reached = true, true
		d.suspects.clear(m.ID)
		d.completion.Published = append(d.completion.Published, Delivered{ID: m.ID, BrokerMessageID: result.BrokerMessageID})
		return
	}
	d.hold(m)
	class, scope := brokers.Classify(result.Err)
	var delay time.Duration
	switch {
	case class == brokers.ClassUnavailable && scope == brokers.ScopeDestination:
		d.reached = true
		if to.fail() {
			d.log.Warn("destination unavailable: its messages wait, no attempt is spent", "destination", m.Stream, "error", result.Err)
		}
		delay = d.detour(m)
	case class == brokers.ClassUnavailable:
		delay, result.Err = d.judge(m, result.Err)
	case class == brokers.ClassNotSent && to.out: // held up by its destination, not by its key
		delay = d.detour(m)
	case class != brokers.ClassNotSent:
		d.reached, to.reached = true, true
	}
	if broken := (*breakdown)(nil); errors.As(result.Err, &broken) && isRetryable(result.Err) {
		d.suspects.convict(m.ID) // the implementation works with others
	}
	outcome := d.decide.AfterSend(m, result.Err, time.Now())
	if outcome.Status == StatusAbandoned {
		d.abandon(m, outcome)
		return
	}
	outcome.Delay = max(outcome.Delay, delay)
	d.completion.Other = append(d.completion.Other, outcome)
}

func isRetryable(err error) bool {
	class, _ := brokers.Classify(err)
	return class == brokers.ClassRetryable
}

// judge tells an outage from a message that makes one. The only message of a call to meet an outage is set aside for longer than
// the next probe, which so uses others; when those pass and it fails again, the fault is its own and costs an attempt. Where
// several meet it at once, nobody is to blame: the next calls are smaller, until one stands alone.
func (d *delivery) judge(m *Message, err error) (delay time.Duration, verdict error) {
	alone := d.outages == 1
	if alone && d.suspects.accuse(m.ID) {
		d.log.Warn("a message meets an outage that others do not: it is charged with the attempt", "message_id", m.MessageID, "type", m.Type, "error", err)
		d.reached = true
		return 0, brokers.Retryable(err)
	}
	d.unavailable = err
	if alone {
		delay = d.breaker.setAside()
	}
	return delay, err
}

func (d *delivery) abandon(m *Message, outcome Outcome) {
	d.completion.Other = append(d.completion.Other, outcome)
	var last LastError
	_ = json.Unmarshal([]byte(outcome.LastError), &last) // we have just encoded it
	d.log.Error("message abandoned", "message_id", m.MessageID, "type", m.Type, "destination", m.Stream, "ordering_key", m.OrderingKey, "attempts", last.Attempt,
		"class", last.Class, "error", last.Message)
}

// hold keeps back the later messages of a key. After an abandoned head the key goes on, but only with the next claim,
// when the outcome is written.
func (d *delivery) hold(m *Message) {
	if m.OrderingKey != "" {
		d.failedKeys[m.OrderingKey] = true
	}
}

func (d *delivery) holds(m *Message) bool {
	return m.OrderingKey != "" && !d.policy.Unordered && d.failedKeys[m.OrderingKey]
}

// errNothingTaken is how a batch counts of which the broker neither took nor judged anything: without a pause it would be
// claimed and released again and again.
var errNothingTaken = errors.New("none of the messages was sent")

// report tells the breakers how it went, and says once what has changed by that.
func (d *delivery) report(ctx context.Context) {
	if d.unavailable == nil && d.asked && !d.reached && ctx.Err() == nil && !d.lease.over() && d.idle() {
		d.unavailable = errNothingTaken
		d.setAside()
	}
	for name, c := range d.calls {
		if c.end() {
			d.log.InfoContext(ctx, "destination available again", "destination", name)
		}
	}
	switch {
	case d.unavailable != nil && !d.reached:
		if d.pass.end(errOutage) {
			d.log.WarnContext(ctx, "broker unavailable: its messages wait, no attempt is spent", "error", d.unavailable)
		}
	case d.reached:
		if d.pass.end(nil) {
			d.log.InfoContext(ctx, "broker available again")
		}
	default:
		d.pass.end(errNoOutcome)
	}
}

// setAside lets what was not sent wait for longer than the next try, which so uses others: an adapter that is stuck with one key,
// say, must not be asked for that key alone.
func (d *delivery) setAside() {
	delay := d.breaker.setAside()
	for i := range d.completion.Other {
		if outcome := &d.completion.Other[i]; !outcome.Spent {
			outcome.Delay = max(outcome.Delay, delay)
		}
	}
}

// idle reports whether the batch has brought nothing forward: rows go back as they came, and none was abandoned.
func (d *delivery) idle() bool {
	abandoned := func(o Outcome) bool { return o.Status == StatusAbandoned } // those are done: the next claim gets further
	released := func(o Outcome) bool { return !o.Spent && !abandoned(o) }
	return slices.ContainsFunc(d.completion.Other, released) && !slices.ContainsFunc(d.completion.Other, abandoned)
}
