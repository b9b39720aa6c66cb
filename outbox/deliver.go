package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// delivery is one claimed batch on its way to the broker.
type delivery struct {
	*worker
	batch       *Batch
	settlement  *Settlement
	lease       *leaseGuard
	failedKeys  map[string]bool // keys that give no further message in this batch
	calls       map[string]*call
	pass        pass
	outages     int   // messages of the last call that met an outage of the broker
	unavailable error // the broker as a whole
	asked       bool  // the broker was handed something
	reached     bool  // the broker has confirmed or judged something
}

// deliver publishes a batch in chunks and returns the outcome of each of its rows.
func (w *worker) deliver(ctx, sending context.Context, batch *Batch, claimedAt time.Time, p pass) *Settlement {
	d := &delivery{
		worker: w, batch: batch, settlement: &Settlement{Lease: batch.Lease, ParkAbandoned: w.policy.ParkAbandoned && !w.policy.Unordered},
		failedKeys: map[string]bool{}, calls: map[string]*call{}, pass: p,
	}
	d.settlement.Published = make([]Delivered, 0, len(batch.Messages))
	sending, d.lease = guardLease(sending, w, batch, claimedAt)
	defer d.lease.stop()
	if m := &batch.Messages[0]; len(batch.Messages) == 1 && m.Crashes > 0 {
		if !w.isolate(sending, min(isolationTime, w.policy.Lease/4)) {
			d.pass.end(errNoOutcome)
			d.settlement.Other = []Outcome{w.decide.Release(m)}
			return d.settlement
		}
		defer w.rejoin()
	}

	chunk := make([]*Message, 0, publishChunk)
	outgoing := make([]brokers.Message, 0, publishChunk)
	for i := range batch.Messages {
		m := &batch.Messages[i]
		out, outcome, ok := w.decide.BeforeSend(m, time.Now())
		switch {
		case ok:
		case d.settlement.ParkAbandoned && d.holds(m): // its key parks behind an earlier row, and it with the key
			d.settlement.Other = append(d.settlement.Other, d.decide.Release(m))
			continue
		default:
			d.abandon(m, outcome)
			d.hold(m)
			continue
		}
		suspect := d.suspects.suspected(m.ID) // it gets a call of its own
		if len(chunk) >= d.chunk() || suspect {
			d.send(ctx, sending, chunk, outgoing)
			chunk, outgoing = chunk[:0], outgoing[:0]
		}
		chunk, outgoing = append(chunk, m), append(outgoing, out)
		if suspect {
			d.send(ctx, sending, chunk, outgoing)
			chunk, outgoing = chunk[:0], outgoing[:0]
		}
	}
	d.send(ctx, sending, chunk, outgoing)
	d.report(ctx)
	w.counters.count(d.settlement)
	return d.settlement
}

// send publishes one chunk, but for what must wait for an earlier failure, the end of the lease or a shutdown.
func (d *delivery) send(ctx, sending context.Context, chunk []*Message, outgoing []brokers.Message) {
	throttled := d.throttle.take(sending, len(chunk)) != nil
	kept := 0
	for i, m := range chunk {
		switch {
		case throttled, ctx.Err() != nil, d.unavailable != nil, d.paused.Load(), d.lease.over(), d.holds(m):
			d.settlement.Other = append(d.settlement.Other, d.decide.Release(m))
			d.hold(m)
		case !d.to(m.Stream).admit():
			outcome := d.decide.Release(m)
			outcome.Delay = d.to(m.Stream).pause()
			d.settlement.Other = append(d.settlement.Other, outcome)
			d.hold(m)
		default:
			chunk[kept], outgoing[kept] = m, outgoing[i]
			kept++
		}
	}
	if kept == 0 {
		return
	}
	chunk, outgoing = chunk[:kept], outgoing[:kept]
	d.asked = true
	results := d.publish(sending, outgoing)
	d.outages = 0
	for i := range results {
		if class, scope := brokers.Classify(results[i].Err); class == brokers.ClassUnavailable && scope == brokers.ScopeBroker {
			d.outages++
		}
	}
	for i, m := range chunk {
		d.settle(m, results[i])
	}
	d.caution.learn(d.unavailable == nil)
}

// chunk is how many messages go to the broker at once.
func (d *delivery) chunk() int { return d.throttle.most(d.caution.chunk()) }

// to is what this delivery sends to a destination.
func (d *delivery) to(stream string) *call {
	c := d.calls[stream]
	if c == nil {
		c = d.streams.call(stream)
		d.calls[stream] = c
	}
	return c
}

// settle records the outcome of one message that was handed to the broker.
func (d *delivery) settle(m *Message, result brokers.Result) {
	to := d.to(m.Stream)
	if result.Err == nil {
		d.reached, to.reached = true, true
		d.suspects.clear(m.ID)
		d.settlement.Published = append(d.settlement.Published, Delivered{ID: m.ID, BrokerMessageID: result.BrokerMessageID})
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
		delay = to.pause()
	case class == brokers.ClassUnavailable:
		delay, result.Err = d.judge(m, result.Err)
	case class == brokers.ClassNotSent && to.out: // held up by its destination, not by its key
		delay = to.pause()
	case class != brokers.ClassNotSent:
		d.reached, to.reached = true, true
	}
	outcome := d.decide.AfterSend(m, result.Err, time.Now())
	if outcome.Status == StatusAbandoned {
		d.abandon(m, outcome)
		return
	}
	outcome.Delay = max(outcome.Delay, delay)
	d.settlement.Other = append(d.settlement.Other, outcome)
}

// judge tells an outage from a message that makes one. The only message of a call to meet an outage is set aside for longer than
// the next probe, which so uses others; when those pass and it fails again, the fault is its own and costs an attempt. Where
// several meet it at once, nobody is to blame: the next calls are smaller, until one stands alone.
func (d *delivery) judge(m *Message, err error) (delay time.Duration, verdict error) {
	alone := d.outages == 1
	if alone && d.suspects.accuse(m.ID, d.counters.published.Load()) {
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
	d.settlement.Other = append(d.settlement.Other, outcome)
	var last LastError
	_ = json.Unmarshal([]byte(outcome.LastError), &last) // we have just encoded it
	d.log.Error("message abandoned", "message_id", m.MessageID, "type", m.Type, "destination", m.Stream, "attempts", last.Attempt,
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
	abandoned := func(o Outcome) bool { return o.Status == StatusAbandoned } // those are done: the next claim gets further
	released := func(o Outcome) bool { return !o.Spent && !abandoned(o) }
	if d.unavailable == nil && d.asked && !d.reached && ctx.Err() == nil && slices.ContainsFunc(d.settlement.Other, released) &&
		!slices.ContainsFunc(d.settlement.Other, abandoned) {
		d.unavailable = errNothingTaken
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

// publish calls the broker within the publish timeout. One that panics is asked again message by message, so that only
// the message that made it panic is to blame.
func (d *delivery) publish(ctx context.Context, outgoing []brokers.Message) []brokers.Result {
	ctx, cancel := context.WithTimeout(ctx, d.policy.PublishTimeout)
	defer cancel()
	results, panicked := d.call(ctx, outgoing)
	if panicked == nil {
		return results
	}
	if len(outgoing) == 1 {
		return []brokers.Result{{Err: brokers.Permanent(panicked)}}
	}
	results = make([]brokers.Result, len(outgoing))
	failed := map[string]bool{}
	for i := range outgoing {
		if key := outgoing[i].OrderingKey; key != "" && failed[key] {
			results[i].Err = brokers.ErrNotSent
			continue
		}
		one, panicked := d.call(ctx, outgoing[i:i+1])
		if panicked != nil {
			one = []brokers.Result{{Err: brokers.Permanent(panicked)}}
		}
		results[i] = one[0]
		failed[outgoing[i].OrderingKey] = one[0].Err != nil
	}
	return results
}

var errResults = errors.New("the broker's implementation broke its contract")

func (d *delivery) call(ctx context.Context, outgoing []brokers.Message) (results []brokers.Result, panicked error) {
	defer func() {
		if r := recover(); r != nil {
			panicked = fmt.Errorf("the broker's implementation panicked: %v", r)
			d.log.ErrorContext(ctx, "panic in a broker's Publish", "panic", r, "messages", len(outgoing), "stack", string(debug.Stack()))
		}
	}()
	results = d.target.Publish(ctx, outgoing)
	if len(results) != len(outgoing) {
		err := fmt.Errorf("%w: %d results for %d messages", errResults, len(results), len(outgoing))
		results = make([]brokers.Result, len(outgoing))
		for i := range results {
			results[i].Err = err
		}
	}
	return results, nil
}
