package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// delivery is one claimed batch on its way to the broker.
type delivery struct {
	p          *Processor
	pass       *pass // of the claim
	batch      *driver.Batch
	completion *driver.Completion
	lease      *leaseGuard
	began      time.Time

	failedKeys   map[string]bool         // keys that give no further message in this batch
	destinations map[string]*destination // by name
	call         Call                    // the current one, or the last
	classified   []classified            // its messages
	unavailable  error                   // the broker as a whole
	suspects     map[int64]bool          // messages that were refused before, or met an outage, and those behind them
	probes       probes                  // of a try of the broker
	asked        bool                    // the broker was handed something
	reached      bool                    // the broker has confirmed or judged something
	failed       bool                    // a message was abandoned, or has spent an attempt
}

// deliver publishes a batch in calls and returns the outcome of each of its rows.
func (w *worker) deliver(ctx, sending context.Context, batch *driver.Batch, claimedAt time.Time) *driver.Completion {
	p := w.p
	d := &delivery{
		p: p, pass: &w.pass, batch: batch, began: claimedAt, destinations: map[string]*destination{},
		completion: &driver.Completion{
			Lease: batch.Lease, BlockAbandoned: p.policy.BlockAbandoned && !p.policy.Unordered, DeletePublished: p.policy.DeletePublished,
		},
	}
	d.completion.Published = make([]driver.Delivered, 0, len(batch.Messages))
	d.classified = slices.Grow(w.classified[:0], min(d.callSize(), len(batch.Messages)))
	sending, d.lease = guardLease(sending, p, batch, claimedAt)
	defer d.lease.stop()
	defer d.leave() // after a panic
	d.sendAll(ctx, sending)
	w.classified = d.classified
	d.report(ctx)
	if d.failed {
		p.failures.report(ctx, false)
	}
	p.counters.count(d.completion)
	if p.observer != nil {
		p.observer.Completing(ctx, d.completion)
	}
	return d.completion
}

// sendAll sends what can be sent, call after call.
func (d *delivery) sendAll(ctx, sending context.Context) {
	room := min(d.callSize(), len(d.batch.Messages))
	messages, outgoing := make([]*driver.Message, 0, room), make([]brokers.Message, 0, room)
	flush := func() {
		d.send(ctx, sending, messages, outgoing)
		messages, outgoing = messages[:0], outgoing[:0]
	}
	d.suspects = d.p.history.suspectsLast(d.batch.Messages, d.p.policy.Unordered)
	d.probes = d.p.history.probes(d.pass.probe)
	for i := range d.batch.Messages {
		m := &d.batch.Messages[i]
		if delivered, known := d.p.outcomes.known(m); known {
			d.completion.Published = append(d.completion.Published, delivered)
			continue
		}
		out, outcome, ok := prepare(m, &d.p.policy, time.Now(), d.began)
		switch {
		case ok:
		case d.completion.Blocks(&outcome) && d.holds(m): // its key is blocked behind an earlier row, and it with the key
			d.release(m, 0)
			continue
		default:
			d.fail(m, outcome, nil, false)
			d.hold(m)
			continue
		}
		alone := d.p.history.knows(m.ID)
		if len(messages) >= d.callSize() || alone {
			flush()
		}
		messages, outgoing = append(messages, m), append(outgoing, out)
		if alone {
			flush()
		}
	}
	flush()
}

// callSize is how many messages go to the broker at once.
func (d *delivery) callSize() int { return d.p.throttle.most(d.p.sizing.size()) }

// send sends messages in one call, but for those that must wait for an earlier failure, the end of
// the lease or a shutdown.
func (d *delivery) send(ctx, sending context.Context, messages []*driver.Message, outgoing []brokers.Message) {
	kept := 0
	for i, m := range messages {
		switch {
		case d.stopped(ctx), d.holds(m):
			d.release(m, 0)
		case !d.to(m).admit(d.suspects[m.ID]):
			d.release(m, d.delay(m))
		case !d.probes.admit(d.suspects[m.ID]):
			d.release(m, d.p.breaker.afterTry())
		default:
			messages[kept], outgoing[kept] = m, outgoing[i]
			kept++
		}
	}
	if kept == 0 {
		return
	}
	messages, outgoing = messages[:kept], outgoing[:kept]
	// Only what is sent counts for the rate. Waiting for it takes time, in which much may end.
	if d.p.throttle.take(sending, kept) != nil || d.stopped(ctx) {
		for _, m := range messages {
			d.release(m, 0)
		}
		return
	}
	d.asked = true
	d.call = Call{Messages: messages, Outgoing: outgoing, Began: time.Now(), clock: d.p.clock, batch: d.batch}
	d.publish(sending)
	d.tellOmitted()
	past := d.p.history.of(&d.call)
	d.askAlone(sending, &past)
	c := classify(&d.call, past, d.p.policy.Retry.MaxAttempts, d.classified)
	d.p.history.learn(&d.call, &c)
	d.carryOut(&c)
	if d.p.log.Enabled(ctx, slog.LevelDebug) {
		d.detail(ctx, &c)
	}
	d.p.sizing.learn(c.unavailable == nil || len(c.showings) > 0, kept, d.call.Took) // what is refused was answered
}

// carryOut does what the classification of the last call says.
func (d *delivery) carryOut(c *classification) {
	d.classified, d.unavailable, d.reached = c.messages, c.unavailable, d.reached || c.reached
	for i, m := range d.call.Messages {
		one, to := &c.messages[i], d.to(m)
		charged := c.charged && i == c.alone
		to.reached = to.reached || one.verdict == verdictPublished || one.scope == scopeMessage && !charged && !one.alone
		if one.verdict == verdictPublished {
			d.completion.Published = append(d.completion.Published, driver.Delivered{ID: m.ID, BrokerMessageID: fitting(d.call.Results[i].BrokerMessageID)})
			continue
		}
		d.hold(m)
		delay := d.pause(c, i)
		outcome := one.outcome(m, d.p.policy.Retry, time.Now())
		if outcome.Status != outbox.StatusAbandoned {
			outcome.Delay = max(outcome.Delay, delay)
		}
		if one.verdict == verdictRelease {
			d.completion.Other = append(d.completion.Other, outcome)
		} else {
			d.fail(m, outcome, one.err, charged)
		}
	}
}

// detail tells of each message of the last call.
func (d *delivery) detail(ctx context.Context, c *classification) {
	for i, m := range d.call.Messages {
		one, result := &c.messages[i], &d.call.Results[i]
		attrs := []slog.Attr{
			slog.String("message_id", m.MessageID), slog.String("type", m.Type), slog.String("ordering_key", m.OrderingKey),
			slog.String("destination", m.Stream), slog.Int("attempt", m.Attempts+1),
		}
		if one.verdict == verdictPublished {
			d.p.log.LogAttrs(ctx, slog.LevelDebug, "message published", append(attrs, slog.String("broker_message_id", result.BrokerMessageID))...)
		} else {
			d.p.log.LogAttrs(ctx, slog.LevelDebug, "message not published", append(attrs, slog.String("verdict", string(one.verdict)), slog.Any("error", result.Err))...)
		}
	}
}

// pause is for how long at least a message of the last call waits that was not published. What is
// unavailable for it is noted, and reported.
func (d *delivery) pause(c *classification, i int) time.Duration {
	one, m := &c.messages[i], d.call.Messages[i]
	to := d.to(m)
	switch {
	case c.charged && i == c.alone:
		return 0
	case one.scope == brokers.ScopeDestination:
		if to.fail(one.err) {
			cause, remedy := advised(one.err, asksBroker)
			d.p.log.Warn("destination unavailable", "remedy", remedy, "destination", m.Stream, "error", cause)
		}
		delay := d.delay(m)
		if d.refused(i) {
			delay += to.breaker.afterTry()
		}
		return delay
	case one.scope == brokers.ScopePartition:
		return d.partitionDelay(m, one.err)
	case i == c.alone, one.verdict == verdictRelease && d.refused(i):
		return d.p.breaker.afterTry()
	default:
		return 0
	}
}

// refused reports whether a message of the last call was refused without a word whose fault it is.
// The next try should use others.
func (d *delivery) refused(i int) bool {
	_, refused := placeOf(d.call.Messages[i], d.call.Results[i].Err)
	return refused
}

// fail is for a message that is abandoned, or tried again at the cost of an attempt. err is what the
// broker said, nil where it was not asked.
func (d *delivery) fail(m *driver.Message, outcome driver.Outcome, err error, charged bool) {
	d.completion.Other = append(d.completion.Other, outcome)
	d.p.failures.note(&notedFailure{
		message: m, lastError: outcome.LastError, err: err, charged: charged,
		abandoned: outcome.Status == outbox.StatusAbandoned, retryIn: outcome.Delay,
	})
	d.failed = true
}

// release gives a message back unsent, and with it the later ones of its key.
func (d *delivery) release(m *driver.Message, delay time.Duration) {
	outcome := release(m)
	outcome.Delay = delay
	d.completion.Other = append(d.completion.Other, outcome)
	d.hold(m)
}

// hold blocks the later messages of a key.
func (d *delivery) hold(m *driver.Message) {
	if d.failedKeys == nil { // as a rule there are none
		d.failedKeys = map[string]bool{}
	}
	d.failedKeys[m.OrderingKey] = true
}

// holds reports whether a message waits for an earlier failure of its key. After an abandoned head
// the key goes on, but only with the next claim, when the outcome is written.
func (d *delivery) holds(m *driver.Message) bool {
	return m.OrderingKey != "" && !d.p.policy.Unordered && d.failedKeys[m.OrderingKey]
}

// stopped reports whether this delivery sends nothing more.
func (d *delivery) stopped(ctx context.Context) bool {
	return ctx.Err() != nil || d.unavailable != nil || d.p.paused.Load() || d.lease.over()
}

// to is what this delivery sends to a message's destination.
func (d *delivery) to(m *driver.Message) *destination {
	to := d.destinations[m.Stream]
	if to == nil {
		to = d.p.destinations.try(m.Stream)
		if to.pass.probe {
			to.probes = d.p.history.probes(true)
		}
		d.destinations[m.Stream] = to
	}
	return to
}

// delay is when a message comes back whose destination is unavailable.
func (d *delivery) delay(m *driver.Message) time.Duration {
	return d.to(m).delay(time.Since(d.began) / time.Duration(len(d.batch.Messages)))
}

// partitionDelay is when a message comes back whose partition is out, which it also reports.
func (d *delivery) partitionDelay(m *driver.Message, err error) time.Duration {
	delay, news := d.p.destinations.partitionDelay(m.Stream, time.Since(d.began)/time.Duration(len(d.batch.Messages)))
	if news {
		cause, remedy := advised(err, asksBroker)
		d.p.log.Warn("partition unavailable", "remedy", remedy, "destination", m.Stream, "error", cause)
	}
	return delay
}

// errNothingTaken is how a batch counts of which the broker neither took nor judged anything:
// without a pause it would be claimed and released again and again.
var errNothingTaken = errors.New("none of the messages was sent")

// leave ends what was tried of destinations, where that is not reported.
func (d *delivery) leave() {
	for _, to := range d.destinations {
		to.pass.end(errNoOutcome)
	}
}

// report tells the breakers how it went, and reports what is news by that.
func (d *delivery) report(ctx context.Context) {
	if d.unavailable == nil && d.asked && !d.reached && ctx.Err() == nil && !d.lease.over() && d.idle() {
		d.unavailable = errNothingTaken
		d.postpone()
	}
	for name, to := range d.destinations {
		if to.end() {
			d.p.log.InfoContext(ctx, "destination available again", "destination", name)
		}
	}
	switch {
	case d.unavailable != nil && !d.reached:
		if d.pass.end(d.unavailable) {
			cause, remedy := advised(d.unavailable, asksBroker)
			d.p.log.WarnContext(ctx, "broker unavailable", "remedy", remedy, "error", cause)
		}
	case d.reached:
		if d.pass.end(nil) {
			d.p.log.InfoContext(ctx, "broker available again")
		}
	default:
		d.pass.end(errNoOutcome)
	}
}

// postpone lets what was not sent wait for longer than until the next try, which so uses others: an
// adapter that is stuck with one key, say, must not be asked for that key alone.
func (d *delivery) postpone() {
	delay := d.p.breaker.afterTry()
	for i := range d.completion.Other {
		if outcome := &d.completion.Other[i]; !outcome.Spent {
			outcome.Delay = max(outcome.Delay, delay)
		}
	}
}

// idle reports whether the batch has brought nothing forward: rows go back as they came, and none
// was abandoned, which lets the next claim get further.
func (d *delivery) idle() bool {
	released := false
	for _, outcome := range d.completion.Other {
		if outcome.Status == outbox.StatusAbandoned {
			return false
		}
		released = released || !outcome.Spent
	}
	return released
}

// maxBrokerMessageID is how many bytes of a broker's id for a message the tables take.
const maxBrokerMessageID = 512

// fitting is a broker's id for a message, or none where it is too long for the table: half of it
// would be another one.
func fitting(id string) string {
	id = strings.ToValidUTF8(strings.ReplaceAll(id, "\x00", "\uFFFD"), "\uFFFD") // as stores write it
	if len(id) > maxBrokerMessageID {
		return ""
	}
	return id
}
