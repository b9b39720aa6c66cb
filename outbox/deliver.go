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
	began       time.Time
	sent        time.Time       // the chunk under way
	failedKeys  map[string]bool // keys that give no further message in this batch
	closedTo    map[string]bool // destinations that are unavailable
	unavailable error           // the broker as a whole
	reached     bool            // the broker has confirmed or judged something
}

// deliver publishes a batch in chunks and returns the outcome of each of its rows.
func (w *worker) deliver(ctx, sending context.Context, batch *Batch, claimedAt time.Time) *Settlement {
	d := &delivery{
		worker: w, batch: batch, began: claimedAt, settlement: &Settlement{Lease: batch.Lease, ParkAbandoned: w.policy.ParkAbandoned && !w.policy.Unordered},
		failedKeys: map[string]bool{}, closedTo: map[string]bool{},
	}
	d.settlement.Published = make([]Delivered, 0, len(batch.Messages))
	sending, d.lease = guardLease(sending, w, batch, claimedAt)
	defer d.lease.stop()
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
		chunk, outgoing = append(chunk, m), append(outgoing, out)
		if len(chunk) == publishChunk {
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
	kept := 0
	for i, m := range chunk {
		switch {
		case ctx.Err() != nil, d.unavailable != nil, d.lease.over(), d.holds(m):
			d.settlement.Other = append(d.settlement.Other, d.decide.Release(m))
			d.hold(m)
		case d.closedTo[m.Stream]:
			d.settle(m, brokers.Result{Err: brokers.Unavailable(brokers.ScopeDestination, fmt.Errorf("destination %q is unavailable", m.Stream))})
		default:
			chunk[kept], outgoing[kept] = m, outgoing[i]
			kept++
		}
	}
	if kept == 0 {
		return
	}
	chunk, outgoing = chunk[:kept], outgoing[:kept]
	d.sent = time.Now()
	results := d.publish(sending, outgoing)
	if sending.Err() != nil {
		excuse(results)
	}
	for i, m := range chunk {
		d.settle(m, results[i])
	}
}

// excuse makes unsent of what failed because we stopped waiting, at the end of a shutdown or of the lease: neither the message
// nor the broker is to blame. Should it have arrived all the same, it is sent again under the same id.
func excuse(results []brokers.Result) {
	for i := range results {
		switch class, _ := brokers.Classify(results[i].Err); class {
		case brokers.ClassRetryable, brokers.ClassUnavailable:
			results[i].Err = brokers.NotSentBecause(results[i].Err)
		default:
		}
	}
}

// settle records the outcome of one message that was handed to the broker.
func (d *delivery) settle(m *Message, result brokers.Result) {
	if result.Err == nil {
		d.reached = true
		d.suspects.clear(m.ID, d.sent)
		d.detours.works(m.Stream)
		d.settlement.Published = append(d.settlement.Published, Delivered{ID: m.ID, BrokerMessageID: result.BrokerMessageID})
		return
	}
	d.hold(m)
	class, scope := brokers.Classify(result.Err)
	var delay time.Duration
	switch {
	case class == brokers.ClassUnavailable && scope == brokers.ScopeDestination:
		d.reached = true
		if !d.closedTo[m.Stream] {
			d.closedTo[m.Stream] = true
			d.log.Warn("destination unavailable: its messages wait, no attempt is spent", "destination", m.Stream, "error", result.Err)
		}
		delay = d.detour(m)
	case class == brokers.ClassUnavailable:
		delay, result.Err = d.judge(m, result.Err)
	case class == brokers.ClassNotSent && d.closedTo[m.Stream]: // held up by its destination, not by its key
		delay = d.detour(m)
	case class != brokers.ClassNotSent:
		d.reached = true
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
	d.settlement.Other = append(d.settlement.Other, outcome)
}

// detour is when a message comes back whose destination is unavailable.
func (d *delivery) detour(m *Message) time.Duration {
	return d.detours.delay(m.Stream, d.decide.OutageDelay, time.Since(d.began)/time.Duration(len(d.batch.Messages)))
}

func isRetryable(err error) bool {
	class, _ := brokers.Classify(err)
	return class == brokers.ClassRetryable
}

// judge tells an outage from a message that makes one. The first message to meet an outage is set aside for longer than
// the next probe, which so uses others; when those pass and it fails again, the fault is its own and costs an attempt.
func (d *delivery) judge(m *Message, err error) (delay time.Duration, verdict error) {
	first := d.unavailable == nil
	if (first || d.suspects.suspected(m.ID)) && d.suspects.accuse(m.ID) {
		d.log.Warn("a message meets an outage that others do not: it is charged with the attempt", "message_id", m.MessageID, "type", m.Type, "error", err)
		d.reached = true
		return 0, brokers.Retryable(err)
	}
	d.unavailable = err
	if first {
		delay = 2 * d.gate.nextDelay()
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

// report opens or closes the gate and says so once.
func (d *delivery) report(ctx context.Context) {
	abandoned := func(o Outcome) bool { return o.Status == StatusAbandoned } // those are done: the next claim gets further
	released := func(o Outcome) bool { return !o.Spent && !abandoned(o) }
	if d.unavailable == nil && !d.reached && ctx.Err() == nil && !d.lease.over() && slices.ContainsFunc(d.settlement.Other, released) &&
		!slices.ContainsFunc(d.settlement.Other, abandoned) {
		d.unavailable = errNothingTaken
	}
	switch {
	case d.unavailable != nil:
		if d.gate.report(d.pass, false) {
			d.log.WarnContext(ctx, "broker unavailable: its messages wait, no attempt is spent", "error", d.unavailable)
		}
	case d.reached:
		if d.gate.report(d.pass, true) {
			d.log.InfoContext(ctx, "broker available again")
		}
	default:
		d.gate.leave(d.pass)
	}
}

// publish calls the broker within the publish timeout. Where its implementation breaks down it is asked again message by
// message, so that only those at which it does so are to blame; and not even they where it does so with every message: then
// it counts as an outage.
func (d *delivery) publish(ctx context.Context, outgoing []brokers.Message) []brokers.Result {
	ctx, cancel := context.WithTimeout(ctx, d.policy.PublishTimeout)
	defer cancel()
	results, broken := d.call(ctx, outgoing)
	if broken == nil {
		return results
	}
	d.log.ErrorContext(ctx, "the broker's implementation broke down", "messages", len(outgoing), "error", broken, "stack", broken.stack)
	if len(outgoing) == 1 {
		return []brokers.Result{{Err: brokers.Unavailable(brokers.ScopeBroker, broken)}}
	}
	results = make([]brokers.Result, len(outgoing))
	works, failed, culprits := d.reached, map[string]bool{}, map[int]error{}
	for i := range outgoing {
		key := outgoing[i].OrderingKey
		if failed[key] || ctx.Err() != nil || d.lease.over() {
			results[i].Err = brokers.ErrNotSent
			continue
		}
		one, broken := d.call(ctx, outgoing[i:i+1])
		if broken != nil {
			culprits[i] = broken
			one = []brokers.Result{{Err: brokers.Unavailable(brokers.ScopeBroker, broken)}}
		}
		results[i] = one[0]
		class, scope := brokers.Classify(one[0].Err)
		works = works || class != brokers.ClassNotSent && scope != brokers.ScopeBroker
		failed[key] = key != "" && one[0].Err != nil
	}
	if works {
		for i, broken := range culprits {
			results[i].Err = brokers.Retryable(broken)
		}
	}
	return results
}

// breakdown is how a broker's implementation does not do what a broker must.
type breakdown struct{ what, stack string }

func (b *breakdown) Error() string { return "the broker's implementation " + b.what }

func (d *delivery) call(ctx context.Context, outgoing []brokers.Message) (results []brokers.Result, broken *breakdown) {
	defer func() {
		if r := recover(); r != nil {
			broken = &breakdown{what: fmt.Sprintf("panicked: %v", r), stack: string(debug.Stack())}
		}
	}()
	results = d.target.Publish(ctx, outgoing)
	if len(results) != len(outgoing) {
		return nil, &breakdown{what: fmt.Sprintf("broke its contract: %d results for %d messages", len(results), len(outgoing))}
	}
	return results, nil
}
