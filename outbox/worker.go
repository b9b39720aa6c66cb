package outbox

import (
	"context"
	"errors"
	"time"
)

// worker claims, publishes and settles, one batch after the other.
type worker struct {
	*Processor
	name   string
	window int
	gated  bool          // the broker has parked rows, as far as this worker knows
	pass   pass          // of the claim in hand
	asked  time.Time     // when the database was asked for the claim in hand
	took   time.Duration // and how long it thought about it
	// stopping is closed when the processor is to stop.
	stopping <-chan struct{}
	// handsOff is true for the one that delivers rows that were born claimed. It claims nothing, and its leases are not renewed.
	handsOff bool
	company
}

const (
	// maxBatchesPerLane is how long a worker stays on one lane before the others get their turn.
	maxBatchesPerLane = 8
	// maxWindow bounds, in batches, how far a claim looks past rows that are in other hands.
	maxWindow = 16
	// parkWindow is how many rows at the head of a lane are looked at to park those that wait: below the number of row locks
	// at which SQL Server would lock the whole table.
	parkWindow = 4000
	// unorderedWaiting is how many waiting rows at the head of a lane are parked where order is off. Fewer do not matter.
	unorderedWaiting = 1000
	// busyTime is how long a lane is left alone that another process is claiming from: much longer than a claim takes.
	busyTime = 20 * time.Millisecond
	// probeLimit is how many rows try out a broker that was unavailable.
	probeLimit = 10
)

// run works until ctx ends; what is in hand then is published while sending lasts, and settled while settling does.
func (w *worker) run(ctx, sending, settling context.Context) {
	w.stopping = ctx.Done()
	for {
		lane, ok := w.lanes.take(ctx)
		if !ok {
			return
		}
		more := w.drain(ctx, sending, settling, lane)
		w.lanes.put(lane, more)
	}
}

// drain works on one lane until it is empty or others should have their turn. more is true when it may hold more work.
func (w *worker) drain(ctx, sending, settling context.Context, lane int) (more bool) {
	var settlement *Settlement
	nothing := &Batch{}
	defer w.inHand.hold(w.name, w.broker, nothing, time.Time{})
	defer w.leave()
	for n := range maxBatchesPerLane {
		if n > 0 && w.lanes.outranked(lane) {
			break
		}
		if settlement != nil && !w.stay() { // outcomes must not wait to be written
			_, _ = w.exchange(settling, settlement, nil)
			settlement = nil
			w.inHand.hold(w.name, w.broker, nothing, time.Time{})
		}
		if settlement == nil && w.enter(ctx) != nil || ctx.Err() != nil || w.paused.Load() { // shutting down, or paused
			w.pass.end(errNoOutcome)
			break
		}
		claim := w.claim(lane)
		batch, claimedAt, err := w.next(ctx, settling, settlement, claim)
		settlement = nil
		w.inHand.hold(w.name, w.broker, batch, claimedAt)
		if err != nil || len(batch.Messages) == 0 {
			again, more := w.nothing(ctx, settling, batch, claim, err)
			if again {
				continue
			}
			return more
		}
		w.gated = batch.Gated
		w.count(ctx, batch)
		w.tellRecovered(batch)
		if !w.park(settling, batch, claim) {
			w.widen(batch, claim)
		}
		settlement = w.deliver(ctx, sending, batch, claimedAt)
		w.rejoin()
	}
	if settlement != nil {
		_, _ = w.exchange(settling, settlement, nil) // logged there; the leases return what could not be settled
	}
	return true
}

// count counts what was claimed, and tells who observes.
func (w *worker) count(ctx context.Context, batch *Batch) {
	w.counters.claimed.Add(int64(len(batch.Messages)))
	if w.observer != nil {
		w.observer.Claimed(ctx, len(batch.Messages), w.took)
	}
}

// stay asks, with outcomes in hand, whether the next rows may be claimed without waiting.
func (w *worker) stay() (ok bool) {
	if w.wanted() || w.throttle.exhausted() {
		return false
	}
	w.pass, ok = w.breaker.try()
	return ok
}

// enter waits, with nothing in hand, until rows may be claimed.
func (w *worker) enter(ctx context.Context) (err error) {
	w.leave()
	if err = w.throttle.wait(ctx); err != nil {
		return err
	}
	if w.pass, err = w.breaker.enter(ctx); err != nil {
		return err
	}
	return w.join(ctx)
}

// next settles and claims the next batch, from a moment on that it returns. A message by which a process may have died is given
// back and claimed again when no other worker of this one has anything in hand: from then on a crash is its own. Before, while
// it waits for the others, theirs could be the message that kills.
func (w *worker) next(ctx, settling context.Context, settlement *Settlement, claim *Claim) (batch *Batch, claimedAt time.Time, err error) {
	exchanged, err := w.exchange(settling, settlement, claim)
	batch = &exchanged.Batch
	if len(batch.Messages) != 1 || batch.Messages[0].Crashes == 0 {
		return batch, w.asked, err
	}
	_, err = w.exchange(settling, &Settlement{Lease: batch.Lease, Other: []Outcome{w.decide.Release(&batch.Messages[0])}}, nil)
	if err == nil {
		err = w.isolate(ctx, min(isolationTime, w.policy.Lease/4))
	}
	if err != nil {
		return &Batch{}, w.asked, err
	}
	claim.Shared = false
	exchanged, err = w.exchange(settling, nil, claim)
	return &exchanged.Batch, w.asked, err
}

// nothing ends a claim that took nothing, and says what follows it: another one at once, or none for now.
func (w *worker) nothing(ctx, settling context.Context, batch *Batch, claim *Claim, err error) (again, more bool) {
	w.rejoin()
	w.pass.end(errNoOutcome)
	switch {
	case w.ended(): // the claim may not have been made
		return false, true
	case err != nil:
		return false, false // the poller finds the lane again when the database answers
	case batch.Busy:
		sleep(ctx, min(busyTime, w.policy.PollMin)) // another process finishes its claim on the lane
		return false, true
	}
	w.gated = batch.Gated
	news := batch.Gated && !claim.Wake // somebody else has parked rows
	return news || w.park(settling, batch, claim) || w.widen(batch, claim), false
}

func (w *worker) claim(lane int) *Claim {
	claim := &Claim{
		Broker: w.broker, Lane: lane, Limit: w.throttle.allows(w.policy.BatchSize), Bytes: w.policy.BatchBytes, Window: w.window,
		Lease: w.policy.Lease, Worker: w.name, Unordered: w.policy.Unordered, Wake: w.gated, Shared: true,
	}
	if w.pass.probe {
		claim.Limit = min(claim.Limit, probeLimit)
	}
	return claim
}

// park takes rows that wait out of the way where they fill the head of the lane, or hold back the backfill. done is true
// when some were.
func (w *worker) park(ctx context.Context, batch *Batch, claim *Claim) (done bool) {
	lanes := []int{claim.Lane}
	switch {
	case batch.Busy || batch.Cut || 2*len(batch.Messages) >= claim.Limit:
		return false
	case batch.AheadWaits: // in either class, and what is behind it in the other
		normal := claim.Lane % w.store.Lanes()
		lanes = []int{normal + int(ClassBackfill)*w.store.Lanes(), normal}
	case claim.Unordered && batch.Waiting < unorderedWaiting, !claim.Unordered && (batch.Seen < claim.Window || 2*batch.Waiting < batch.Seen):
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, w.databaseTimeout())
	defer cancel()
	for _, lane := range lanes {
		parked, err := w.store.Park(ctx, &Claim{Broker: claim.Broker, Lane: lane, Window: parkWindow, Unordered: claim.Unordered})
		if err != nil {
			w.log.WarnContext(ctx, "cannot take waiting rows out of the way; trying again later", "error", err)
			return done
		}
		done = done || parked > 0
		w.gated = w.gated || done
	}
	return done
}

// widen adapts the window: it grows while rows that must wait fill it, and shrinks when the claim comes back full.
// again is true when an empty claim should be repeated with the larger window.
func (w *worker) widen(batch *Batch, claim *Claim) (again bool) {
	claimed := len(batch.Messages)
	switch {
	case batch.Seen >= claim.Window && !batch.Cut && 2*claimed < claim.Limit && w.window < maxWindow*w.policy.BatchSize:
		w.window = min(2*w.window, maxWindow*w.policy.BatchSize)
		return claimed == 0
	case batch.Cut || claimed >= claim.Limit:
		w.window = max(w.policy.BatchSize, w.window/2)
	}
	return false
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

// exchange settles and claims. A settlement whose fate is unknown is repeated, without the claim, until it is known or
// the lease is about to end anyway.
func (w *worker) exchange(ctx context.Context, settlement *Settlement, claim *Claim) (Exchanged, error) {
	// A claim whose answer is given up would leave rows leased to nobody; so it is not cut short by a shutdown.
	exchanged, err := w.ask(ctx, settlement, claim)
	if settlement == nil || exchanged.Settled != nil {
		if ctx.Err() == nil && !errors.Is(err, errEnded) {
			w.heard(&w.claimFailing, "claim rows", err)
		}
		w.settled(ctx, exchanged.Settled)
		return exchanged, err
	}
	w.log.ErrorContext(ctx, "cannot write the outcome of a batch; trying again", "error", err, "rows", len(settlement.Published)+len(settlement.Other))
	delay, deadline := w.policy.PollMin, time.Now().Add(w.policy.Lease)
	for time.Now().Add(delay).Before(deadline) {
		sleep(ctx, delay)
		if ctx.Err() != nil {
			break
		}
		again, retryErr := w.ask(ctx, settlement, nil)
		if retryErr == nil {
			// Rows that carry the token no more may have been settled by the first try: no verdict about leases.
			return again, err
		}
		delay = min(2*delay, 5*time.Second)
	}
	w.log.ErrorContext(ctx, "gave up writing the outcome of a batch: its messages will be delivered again, under the same ids, when their lease ends",
		"error", err, "rows", len(settlement.Published)+len(settlement.Other))
	return exchanged, err
}

// errEnded says that a claim was not made, since nothing could come of it any more.
var errEnded = errors.New("outbox: stopped or paused while the claim waited for its turn")

// ended reports whether the processor was stopped or paused.
func (w *worker) ended() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return w.paused.Load()
	}
}

// ask waits for its turn and bounds one exchange: a database that is silent must not hold a worker for ever. Who waited while the processor
// was stopped or paused claims nothing; and outcomes wait for no turn when it stops, since another one's exchange may take longer than is left.
func (w *worker) ask(ctx context.Context, settlement *Settlement, claim *Claim) (Exchanged, error) {
	if !w.handsOff { // what is handed off is one exchange at a time by itself, and should be quick
		select {
		case w.exchanges <- struct{}{}:
			defer func() { <-w.exchanges }()
		case <-w.stopping:
		}
		if claim != nil && w.ended() {
			claim = nil
			if settlement == nil {
				return Exchanged{}, errEnded
			}
		}
	}
	if claim != nil {
		w.asked = time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, w.databaseTimeout())
	defer cancel()
	exchanged, err := w.store.Exchange(ctx, settlement, claim)
	if claim != nil {
		w.took = time.Since(w.asked)
	}
	return exchanged, err
}

func (w *worker) settled(ctx context.Context, settled *Settled) {
	if settled == nil || settled.Lost == 0 {
		return
	}
	w.counters.leaseLost.Add(int64(settled.Lost))
	if w.observer != nil {
		w.observer.LeaseLost(ctx, settled.Lost)
	}
	w.log.WarnContext(ctx, "lease lost: rows had been taken over by the time their outcome was known; they were left as they are", "rows", settled.Lost)
}
