package relay

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// worker claims, publishes and completes, one batch after the other.
type worker struct {
	p          *Processor
	isolation  claimant
	name       string
	window     int
	blocked    bool                                      // the broker has deferred rows, as far as this worker knows
	ahead      [outbox.Classes * outbox.Shards]lookAhead // by shard
	pass       pass                                      // of the current claim
	trial      bool                                      // the current claim is of one row, to find out whether outcomes can be written
	sent       []driver.Message                          // whose outcomes are written next
	asked      time.Time                                 // when the database was asked for the current claim
	took       time.Duration                             // and how long it thought about it
	classified []classified                              // room for what calls mean
	// stopping is closed when the processor is to stop.
	stopping <-chan struct{}
}

const (
	// maxBatchesPerShard is how long a worker stays on one shard before the others get their turn.
	maxBatchesPerShard = 8
	// maxWindow bounds, in batches, how far a claim looks past rows that others have claimed.
	maxWindow = 16
	// deferWindow is how many rows at the head of a shard are looked at to defer those that wait:
	// below the number of row locks at which SQL Server would lock the whole table.
	deferWindow = 4000
	// unorderedWaiting is how many waiting rows at the head of a shard are deferred where order is
	// off. Fewer do not matter.
	unorderedWaiting = 1000
	// busyTime is how long a shard is left alone that another process is claiming from: much longer
	// than a claim takes.
	busyTime = 20 * time.Millisecond
	// probeLimit is how many rows try out a broker, or a destination, that was unavailable, and
	// refusedLimit how many where it refuses what it gets: that is an answer and costs no
	// timeout, and what it would take may be behind many that it refuses.
	probeLimit   = 10
	refusedLimit = 50
)

// run works until ctx ends; what is claimed then is published while sending lasts, and completed
// while completing does.
func (w *worker) run(ctx, sending, completing context.Context) {
	w.stopping = ctx.Done()
	for {
		shard, ok := w.p.shards.take(ctx)
		if !ok {
			return
		}
		more := false // after a panic the next poll finds the shard again
		if !w.p.survive(ctx, "deliver rows", func() { more = w.drain(ctx, sending, completing, shard) }) {
			w.pass.end(errNoOutcome)
		}
		w.p.shards.put(shard, more)
	}
}

// drain works on one shard until it is empty or others should have their turn. more is true when it
// may hold more work.
func (w *worker) drain(ctx, sending, completing context.Context, shard int) (more bool) {
	var completion *driver.Completion
	nothing := &driver.Batch{}
	defer w.p.inHand.hold(w.name, w.p.broker, nothing, time.Time{})
	defer w.isolation.leave()
	for n := range maxBatchesPerShard {
		if n > 0 && w.p.shards.outranked(shard) {
			break
		}
		if completion != nil && !w.stay() { // outcomes must not wait to be written
			_, _ = w.exchange(completing, completion, nil)
			completion = nil
			w.p.inHand.hold(w.name, w.p.broker, nothing, time.Time{})
		}
		if completion == nil && w.enter(ctx) != nil || ctx.Err() != nil || w.p.paused.Load() { // shutting down, or paused
			w.pass.end(errNoOutcome)
			break
		}
		claim := w.claim(shard)
		batch, claimedAt, err := w.next(ctx, completing, completion, claim)
		completion = nil
		w.p.inHand.hold(w.name, w.p.broker, batch, claimedAt)
		if err != nil || len(batch.Messages) == 0 {
			again, more := w.nothing(ctx, completing, batch, claim, err)
			if again {
				continue
			}
			return more
		}
		w.blocked = batch.Blocked
		w.count(ctx, batch)
		w.tellRecovered(batch)
		deferred := w.deferRows(completing, batch, claim)
		completion = w.deliver(ctx, sending, batch, claimedAt)
		took := time.Since(claimedAt)
		w.p.keys.learn(batch.Messages, took)
		if !deferred {
			w.widen(batch, claim, took)
		}
		w.sent = batch.Messages
		w.isolation.rejoin()
	}
	if completion != nil {
		_, _ = w.exchange(completing, completion, nil) // what could not be written is held
	}
	return true
}

// count counts what was claimed, and tells who observes.
func (w *worker) count(ctx context.Context, batch *driver.Batch) {
	w.p.counters.claimed.Add(int64(len(batch.Messages)))
	if w.p.observer != nil {
		w.p.observer.Claimed(ctx, len(batch.Messages), w.took)
	}
}

// stay asks, with outcomes to be written, whether the next rows may be claimed without waiting.
func (w *worker) stay() (ok bool) {
	if w.p.isolation.wanted() || w.p.throttle.exhausted() || w.p.outcomes.closed() {
		return false
	}
	w.trial = false
	w.pass, ok = w.p.breaker.try()
	return ok
}

// enter waits, with nothing claimed, until rows may be claimed.
func (w *worker) enter(ctx context.Context) (err error) {
	w.isolation.leave()
	if err = w.p.throttle.wait(ctx); err != nil {
		return err
	}
	if w.trial, err = w.p.outcomes.enter(ctx); err != nil {
		return err
	}
	if w.pass, err = w.p.breaker.enter(ctx); err != nil {
		return err
	}
	return w.isolation.join(ctx)
}

// next completes and claims the next batch, from a moment on that it returns. A message by which a
// process may have crashed is given back and claimed again in isolation, when no other worker of
// this process has claimed anything: from then on a crash is its own. Before, while it waits for
// the others, theirs could be the message that crashes the process.
func (w *worker) next(ctx, completing context.Context, completion *driver.Completion, claim *driver.Claim) (batch *driver.Batch, claimedAt time.Time, err error) {
	exchanged, err := w.exchange(completing, completion, claim)
	batch = &exchanged.Batch
	if len(batch.Messages) != 1 || batch.Messages[0].Crashes == 0 {
		return batch, w.asked, err
	}
	if _, known := w.p.outcomes.known(&batch.Messages[0]); known { // it is not sent
		return batch, w.asked, err
	}
	w.sent = batch.Messages
	_, err = w.exchange(completing, &driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{release(&batch.Messages[0])}}, nil)
	if err == nil {
		err = w.isolation.isolate(ctx, min(isolationTime, w.p.policy.Lease/4))
	}
	if err != nil {
		return &driver.Batch{}, w.asked, err
	}
	claim.Shared = false
	exchanged, err = w.exchange(completing, nil, claim)
	return &exchanged.Batch, w.asked, err
}

// nothing ends a claim that claimed nothing, and says what follows it: another one at once, or none
// for now.
func (w *worker) nothing(ctx, completing context.Context, batch *driver.Batch, claim *driver.Claim, err error) (again, more bool) {
	w.isolation.rejoin()
	w.pass.end(errNoOutcome)
	if w.trial && !errors.Is(err, errHeld) {
		w.p.outcomes.retry()
	}
	switch {
	case w.ended(), errors.Is(err, errHeld): // the claim may not have been made
		return false, true
	case err != nil:
		if claim.Ahead > 0 {
			w.ahead[claim.Shard].failed(w.took, claim.Ahead)
		}
		return false, false // the poller finds the shard again when the database answers
	case batch.Busy:
		sleep(ctx, min(busyTime, w.p.policy.PollMin)) // another process finishes its claim on the shard
		return false, true
	}
	w.blocked = batch.Blocked
	news := batch.Blocked && !claim.Wake // another process has deferred rows
	return news || w.deferRows(completing, batch, claim) || w.widen(batch, claim, w.took), false
}

func (w *worker) claim(shard int) *driver.Claim {
	claim := &driver.Claim{
		Broker: w.p.broker, Shard: shard, Limit: w.p.throttle.allows(w.p.policy.BatchSize), Bytes: w.p.policy.BatchBytes,
		MaxPayload: w.p.policy.MaxPayloadBytes, Window: w.window,
		Lease: w.p.policy.Lease, Worker: w.name, Unordered: w.p.policy.Unordered, Wake: w.blocked, Shared: true,
		AroundLocked: w.p.locked.around(shard), Ahead: w.ahead[shard].next(), PerKey: w.p.keys.perKey(),
	}
	if claim.PerKey > 0 { // the share of one key is no batch
		claim.Window = max(w.window, maxWindow*w.p.policy.BatchSize)
	}
	if w.trial {
		claim.Limit = 1
	}
	if w.pass.probe { // a few, and those behind which they may wait
		claim.Limit = min(claim.Limit, w.p.history.probeLimit()+int(w.p.history.suspects.Load()))
	}
	return claim
}

// deferRows defers rows that wait where they fill the head of the shard, which a claim that looked past
// it says nothing about. done is true when the claim is to be followed by another one.
func (w *worker) deferRows(ctx context.Context, batch *driver.Batch, claim *driver.Claim) (done bool) {
	ahead := &w.ahead[claim.Shard]
	switch {
	case batch.Busy:
		return false
	case claim.Ahead > 0:
		ahead.looked(w.took, len(batch.Messages) > 0)
		return true
	case batch.Cut || 2*len(batch.Messages) >= claim.Limit || !mostlyWaits(batch, claim):
		if !w.crowded(batch, claim) {
			ahead.clear()
		}
		return false
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, w.p.databaseTimeout())
	defer cancel()
	deferred, err := w.p.store.Defer(ctx, &driver.Claim{
		Broker: claim.Broker, Shard: claim.Shard, Window: deferWindow, Unordered: claim.Unordered, AroundLocked: w.p.locked.around(claim.Shard),
	})
	if err != nil {
		if w.p.deferFailing.Failed(err) {
			w.p.log.WarnContext(ctx, "rows not deferred", "error", err)
		}
		return false
	}
	if _, was := w.p.deferFailing.Works(); was {
		w.p.log.InfoContext(ctx, "rows deferred again")
	}
	w.blocked = w.blocked || deferred > 0
	if deferred > 0 && !claim.Unordered {
		ahead.deferred(time.Since(began))
	}
	return deferred > 0
}

// mostlyWaits reports whether rows that wait for a time fill the head of a shard.
func mostlyWaits(batch *driver.Batch, claim *driver.Claim) bool {
	if claim.Unordered {
		return batch.Waiting >= unorderedWaiting
	}
	return batch.Seen >= claim.Window && 2*batch.Waiting >= batch.Seen
}

// crowded reports whether rows that could not be claimed, but wait for no time, fill the largest window.
func (w *worker) crowded(batch *driver.Batch, claim *driver.Claim) bool {
	return claim.Ahead == 0 && !claim.Unordered && claim.Window >= maxWindow*w.p.policy.BatchSize && batch.Seen >= claim.Window &&
		!batch.Cut && 2*len(batch.Messages) < claim.Limit
}

// widen adapts the window: it grows while rows that must wait fill it, and shrinks when the claim
// comes back full. Rows that fill the largest window are looked past. again is true when an empty claim
// should be repeated, with the larger window or so. took is how long the batch took.
func (w *worker) widen(batch *driver.Batch, claim *driver.Claim, took time.Duration) (again bool) {
	claimed, largest := len(batch.Messages), maxWindow*w.p.policy.BatchSize
	switch {
	case w.crowded(batch, claim):
		w.ahead[claim.Shard].crowded(took)
		return claimed == 0 && w.ahead[claim.Shard].next() > 0
	case batch.Seen >= claim.Window && !batch.Cut && 2*claimed < claim.Limit && w.window < largest:
		w.window = min(2*w.window, largest)
		return claimed == 0
	case batch.Cut || claimed >= claim.Limit:
		w.window = max(w.p.policy.BatchSize, w.window/2)
	}
	return false
}

// errHeld says that a completion was not written, and nothing claimed for that.
var errHeld = errors.New("outbox: outcomes are held that were not written")

// exchange completes and claims. A completion that fails, or whose fate is unknown, is held for another
// try. Around rows that other sessions have locked the claim goes on.
func (w *worker) exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	// A claim whose answer is not awaited would leave rows with a lease but no owner; so it is not
	// cut short by a shutdown.
	exchanged, err := w.ask(ctx, completion, claim)
	if completion != nil && exchanged.Completed == nil {
		w.p.outcomes.hold(ctx, completion, w.sent, err)
		if claim == nil || !errors.Is(err, driver.ErrLocked) || w.p.outcomes.closed() {
			return exchanged, errHeld
		}
		completion = nil
		exchanged, err = w.ask(ctx, nil, claim)
	}
	w.exchanged(ctx, completion, claim, &exchanged, err)
	return exchanged, err
}

// exchanged notes what has come of an exchange of which nothing is to be completed any more.
func (w *worker) exchanged(ctx context.Context, completion *driver.Completion, claim *driver.Claim, done *driver.Exchanged, err error) {
	if completion != nil {
		w.completed(ctx, completion, done.Completed.Lost)
	}
	if ctx.Err() == nil && !errors.Is(err, errEnded) {
		// Where another relay has the shard, or nothing is there for it, it was not tried whether rows can be claimed.
		if err == nil && completion == nil && (done.Batch.Busy || len(done.Batch.Messages) == 0) {
			_, was := w.p.claimFailing.Reached()
			w.p.answers("claim rows", was)
		} else {
			w.p.heard(&w.p.claimFailing, "claim rows", err)
		}
	}
	if err == nil && claim != nil {
		w.p.lockedSeen(ctx, claim, &done.Batch)
		w.p.busySeen(ctx, claim, &done.Batch)
	}
}

// errEnded says that a claim was not made, since nothing could come of it any more.
var errEnded = errors.New("outbox: stopped or paused while the claim waited for its turn")

// ended reports whether the processor was stopped or paused.
func (w *worker) ended() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return w.p.paused.Load()
	}
}

// ask waits for its turn and bounds one exchange: a database that is silent must not hold a worker
// forever. Who waited while the processor was stopped or paused claims nothing; and outcomes wait
// for no turn when it stops, since another one's exchange may take longer than is left.
func (w *worker) ask(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	select {
	case w.p.exchanges <- struct{}{}:
		defer func() { <-w.p.exchanges }()
	case <-w.stopping:
	}
	if claim != nil && w.ended() {
		claim = nil
		if completion == nil {
			return driver.Exchanged{}, errEnded
		}
	}
	if claim != nil {
		w.asked = time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, w.p.databaseTimeout())
	defer cancel()
	exchanged, err := w.p.store.Exchange(ctx, completion, claim)
	if claim != nil {
		w.took = time.Since(w.asked)
	}
	return exchanged, err
}

// completed notes what has come of a completion. Rows that it did not change belong to others by now, or
// the database has swallowed their outcomes.
func (w *worker) completed(ctx context.Context, completion *driver.Completion, lost int) {
	if lost < len(completion.Published)+len(completion.Other) {
		w.p.outcomes.written()
	}
	if lost == 0 {
		return
	}
	if err := w.p.swallowed(ctx, completion, lost); err != nil {
		w.p.outcomes.hold(ctx, completion, w.sent, err)
		return
	}
	w.p.counters.leaseLost.Add(int64(lost))
	if w.p.observer != nil {
		w.p.observer.LeaseLost(ctx, lost)
	}
	w.p.log.WarnContext(ctx, "lease lost before completion", "rows", lost)
}

// seldom says at most once in seldomEvery that it is time to log what may happen with each batch.
type seldom struct{ last atomic.Int64 } // in nanoseconds since 1970

const seldomEvery = time.Minute

func (s *seldom) now() bool {
	now, last := time.Now().UnixNano(), s.last.Load()
	return now-last >= int64(seldomEvery) && s.last.CompareAndSwap(last, now)
}

// tellRecovered says that a process has crashed, or stood still, with claimed rows. Nothing else
// can: it does not log any more.
func (w *worker) tellRecovered(batch *driver.Batch) {
	rows, crashes := 0, 0
	for i := range batch.Messages {
		if n := batch.Messages[i].Crashes; n > 0 {
			rows++
			crashes = max(crashes, n)
		}
	}
	if rows == 0 || !w.p.recovered.now() {
		return
	}
	w.p.log.Warn("recovered rows from expired leases", "rows", rows, "crashes", crashes)
}

// sleep waits for a while, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
