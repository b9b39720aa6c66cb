package outbox

import (
	"context"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// delivery is one claimed batch on its way to the broker.
type delivery struct {
	*worker
	batch       *Batch
	completion  *Completion
	lease       *leaseGuard
	began       time.Time
	failedKeys  map[string]bool  // keys that give no further message in this batch
	calls       map[string]*call // by destination
	outages     int              // messages of the last call that met an outage of the broker
	unavailable error            // the broker as a whole
	asked       bool             // the broker was handed something
	reached     bool             // the broker has confirmed or judged something
}

// deliver publishes a batch in chunks and returns the outcome of each of its rows.
func (w *worker) deliver(ctx, sending context.Context, batch *Batch, claimedAt time.Time) *Completion {
	d := &delivery{
		worker: w, batch: batch, began: claimedAt, failedKeys: map[string]bool{}, calls: map[string]*call{},
		completion: &Completion{Lease: batch.Lease, BlockAbandoned: w.policy.BlockAbandoned && !w.policy.Unordered},
	}
	d.completion.Published = make([]Delivered, 0, len(batch.Messages))
	sending, d.lease = guardLease(sending, w, batch, claimedAt)
	defer d.lease.stop()
	room := min(d.chunk(), len(batch.Messages))
	chunk, outgoing := make([]*Message, 0, room), make([]brokers.Message, 0, room)
	flush := func() {
		d.send(ctx, sending, chunk, outgoing)
		chunk, outgoing = chunk[:0], outgoing[:0]
	}
	for i := range batch.Messages {
		m := &batch.Messages[i]
		out, outcome, ok := w.decide.BeforeSend(m, time.Now())
		switch {
		case ok:
		case d.completion.Blocks(&outcome) && d.holds(m): // its key is blocked behind an earlier row, and it with the key
			d.release(m, 0)
			continue
		default:
			d.abandon(m, outcome)
			d.hold(m)
			continue
		}
		suspect := d.suspects.suspected(m.ID) // it gets a call of its own
		if len(chunk) >= d.chunk() || suspect {
			flush()
		}
		chunk, outgoing = append(chunk, m), append(outgoing, out)
		if suspect {
			flush()
		}
	}
	flush()
	d.report(ctx)
	w.counters.count(d.completion)
	if w.observer != nil {
		w.observer.Completing(ctx, d.completion)
	}
	return d.completion
}

// chunk is how many messages go to the broker at once.
func (d *delivery) chunk() int { return d.throttle.most(d.caution.chunk()) }

// send publishes one chunk, but for what must wait for an earlier failure, the end of the lease or a shutdown.
func (d *delivery) send(ctx, sending context.Context, chunk []*Message, outgoing []brokers.Message) {
	kept := 0
	for i, m := range chunk {
		switch {
		case d.stopped(ctx), d.holds(m):
			d.release(m, 0)
		case !d.to(m.Stream).admit():
			d.release(m, d.detour(m))
		default:
			chunk[kept], outgoing[kept] = m, outgoing[i]
			kept++
		}
	}
	if kept == 0 {
		return
	}
	chunk, outgoing = chunk[:kept], outgoing[:kept]
	// Only what is sent counts for the rate. Waiting for it takes time, in which much may end.
	if d.throttle.take(sending, kept) != nil || d.stopped(ctx) {
		for _, m := range chunk {
			d.release(m, 0)
		}
		return
	}
	d.asked = true
	sent := time.Now()
	results, took := d.call(sending, sent, chunk, outgoing)
	d.survey(results, sent)
	d.tellOmitted(chunk, results)
	for i, m := range chunk {
		d.complete(m, results[i])
	}
	d.caution.learn(d.unavailable == nil, kept, took)
}

// call calls the broker, and tells who observes.
func (d *delivery) call(sending context.Context, sent time.Time, chunk []*Message, outgoing []brokers.Message) (results []brokers.Result, took time.Duration) {
	var call *Call
	watched := sending
	if d.observer != nil {
		call = &Call{Messages: chunk, Outgoing: outgoing, Began: sent, clock: d.clock}
		watched = d.observer.Publishing(sending, call)
	}
	results = d.publish(watched, outgoing)
	took = time.Since(sent)
	if sending.Err() != nil {
		excuse(results)
	}
	if call != nil {
		call.Results, call.Took = results, took
		d.observer.Published(watched, call)
	}
	return results, took
}

// stopped reports whether this delivery sends nothing more.
func (d *delivery) stopped(ctx context.Context) bool {
	return ctx.Err() != nil || d.unavailable != nil || d.paused.Load() || d.lease.over()
}

// release gives a message back unsent, and with it the later ones of its key.
func (d *delivery) release(m *Message, delay time.Duration) {
	outcome := d.decide.Release(m)
	outcome.Delay = delay
	d.completion.Other = append(d.completion.Other, outcome)
	d.hold(m)
}

// survey looks at the results of a call as a whole, before each is completed.
func (d *delivery) survey(results []brokers.Result, sent time.Time) {
	d.outages = 0
	passed := false
	for i := range results {
		class, scope := brokers.Classify(results[i].Err)
		passed = passed || results[i].Err == nil
		if class == brokers.ClassUnavailable && scope == brokers.ScopeBroker {
			d.outages++
		}
	}
	if passed {
		d.suspects.pass(sent)
	}
}

// to is what this delivery sends to a destination.
func (d *delivery) to(stream string) *call {
	c := d.calls[stream]
	if c == nil {
		c = d.streams.call(stream)
		d.calls[stream] = c
	}
	return c
}

// detour is when a message comes back whose destination is unavailable.
func (d *delivery) detour(m *Message) time.Duration {
	return d.to(m.Stream).detour(time.Since(d.began) / time.Duration(len(d.batch.Messages)))
}
