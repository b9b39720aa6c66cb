package relay

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// receiver takes rows of this process's own transactions and delivers them without a claim. It is
// one more worker of its processor.
//
// All rows carry one token, made anew for each run: a row gets it at its INSERT and never again, so
// as a fence it is as good as one for each. But a renewal, which goes by the token and a range of
// ids, would count others of the range. So these leases are not renewed. Sending stops at 80 % of
// the lease from before the INSERT on, and what is left then goes back.
type receiver struct {
	p      *Processor
	worker *worker
	token  uuid.UUID
	stats  handOffCounters

	mu     sync.Mutex
	open   bool // rows are let in
	over   bool // nothing is taken from the queues any more
	room   int  // for how many rows
	taken  int  // of it: reserved, queued, or being delivered
	queues [outbox.Shards][]copied
	turn   int           // the shard that was served last
	news   chan struct{} // something was queued or given back
	served int           // batches; of run alone

	verifyFailing atomic.Bool
}

// copied is a row as its transaction wrote it.
type copied struct {
	row   *outbox.Row
	asked time.Time
}

type handOffCounters struct {
	sent, unfit, busy, full, behind, withdrawn, gone atomic.Int64
}

func (c *handOffCounters) read() HandOffStats {
	return HandOffStats{
		Sent: c.sent.Load(), Unfit: c.unfit.Load(), Busy: c.busy.Load(), Full: c.full.Load(),
		Behind: c.behind.Load(), Withdrawn: c.withdrawn.Load(), Gone: c.gone.Load(),
	}
}

// handOffBacklog is how many open rows of others may stand before a row that is handed off: so far
// the verification reads.
const handOffBacklog = 100

// claimEvery is after how many batches that were handed off the shard is claimed from all the same:
// a store may learn from its claims where to begin to read, which the verification profits from.
const claimEvery = 100

// newReceiver returns nil where rows are not handed off.
func newReceiver(p *Processor) *receiver {
	if !p.policy.HandOff || p.store.Shards() > outbox.Shards {
		return nil
	}
	return &receiver{
		p: p, token: uuid.New(), room: p.policy.BatchSize, news: make(chan struct{}, 1),
		worker: &worker{p: p, handsOff: true},
	}
}

// start lets rows in, which need the name of the worker that they belong to.
func (r *receiver) start(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.worker.name, r.worker.isolation.process, r.open = name, r.p.isolation, true
}

// run delivers until ctx ends, and then gives back what comes of transactions that had a place,
// while completing lasts.
func (r *receiver) run(ctx, sending, completing context.Context) {
	for ctx.Err() == nil {
		select {
		case <-r.news:
			r.serve(ctx, sending, completing)
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	r.open = false
	r.mu.Unlock()
	for {
		r.serve(ctx, sending, completing)
		if r.empty() {
			return
		}
		select {
		case <-r.news:
		case <-completing.Done():
			r.drop()
			return
		}
	}
}

// serve delivers what is queued, a shard at a time.
func (r *receiver) serve(ctx, sending, completing context.Context) {
	for {
		shard, copies := r.next()
		if len(copies) == 0 {
			return
		}
		back := r.handle(ctx, sending, completing, shard, copies)
		r.served++
		r.leave(shard, len(copies), back || r.served%claimEvery == 0)
	}
}

// next takes the rows of one shard. The shards take turns.
func (r *receiver) next() (shard int, copies []copied) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range r.queues {
		r.turn = (r.turn + 1) % len(r.queues)
		if copies = r.queues[r.turn]; len(copies) > 0 {
			r.queues[r.turn] = nil
			return r.turn, copies
		}
	}
	return 0, nil
}

// empty ends it when nothing is on its way any more, and nobody can bring more.
func (r *receiver) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = r.taken == 0
	return r.over
}

// drop forgets what comes too late to be given back: the lease will return it.
func (r *receiver) drop() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	for {
		shard, copies := r.next()
		if len(copies) == 0 {
			return
		}
		r.leave(shard, len(copies), false)
	}
}

// leave frees the room of rows that are on their way no more.
func (r *receiver) leave(shard, rows int, back bool) {
	r.mu.Lock()
	r.taken -= rows
	r.mu.Unlock()
	r.p.shards.arrive(shard, rows, back)
	r.tell()
}

func (r *receiver) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// handle delivers rows of one shard. back says that some were given back.
func (r *receiver) handle(ctx, sending, completing context.Context, shard int, copies []copied) (back bool) {
	w := r.worker
	defer r.p.inHand.hold(w.name, r.p.broker, &driver.Batch{}, time.Time{})
	defer w.isolation.leave()
	asked := slices.MinFunc(copies, func(a, b copied) int { return a.asked.Compare(b.asked) }).asked
	may := r.may(ctx, asked)
	found, err := r.verify(completing, shard, copies, asked)
	if err != nil {
		w.pass.end(errNoOutcome)
		r.p.log.ErrorContext(ctx, "cannot verify rows that were handed off: their leases bring them back", "error", err, "rows", len(copies))
		return false
	}
	may = may && !r.late(asked) // the answer may have taken long
	b := newHandedBatch(r, shard, copies, found, may)
	r.p.inHand.hold(w.name, r.p.broker, &b.batch, asked)
	completion := &driver.Completion{Lease: b.batch.Lease}
	if len(b.batch.Messages) > 0 {
		completion = w.deliver(ctx, sending, &b.batch, asked)
	} else {
		w.pass.end(errNoOutcome)
	}
	back = len(b.back) > 0 || len(completion.Other) > 0
	completion.Other = append(completion.Other, b.back...)
	if len(completion.Published)+len(completion.Other) > 0 {
		_, _ = w.exchange(completing, completion, nil) // logged there; the leases return what could not be completed
	}
	for _, stray := range b.strays {
		_, _ = w.exchange(completing, &stray, nil)
		r.p.shards.mark(stray.Lease.Shard)
	}
	return back
}

// may asks, with a pass of the breaker and beside other workers, whether anything may be sent now.
func (r *receiver) may(ctx context.Context, asked time.Time) bool {
	w := r.worker
	pass, ok := r.p.breaker.try()
	w.pass = pass
	if !ok || pass.probe { // a probe is for rows that have waited
		w.pass.end(errNoOutcome)
		return false
	}
	return w.isolation.join(ctx) == nil && ctx.Err() == nil && !r.p.paused.Load() && !r.late(asked)
}

// late reports whether it is not worth beginning: claimed rows have a whole lease before them, and
// these should have half of one.
func (r *receiver) late(asked time.Time) bool { return past(asked.Add(r.p.policy.Lease/2), time.Now()) }

// verify asks the database, again where it does not answer, for as long as that makes sense.
func (r *receiver) verify(ctx context.Context, shard int, copies []copied, asked time.Time) ([]driver.HandedRow, error) {
	v := &driver.Verification{
		Broker: r.p.broker, Shard: shard, Token: r.token, MessageIDs: make([]uuid.UUID, len(copies)), Unordered: r.p.policy.Unordered, Backlog: handOffBacklog,
	}
	for i := range copies {
		v.MessageIDs[i] = copies[i].row.MessageID
	}
	for delay := r.p.policy.PollMin; ; delay = min(2*delay, time.Second) {
		found, err := r.verifyOnce(ctx, v)
		r.p.heard(&r.verifyFailing, "verify rows that were handed off", err)
		if err == nil || ctx.Err() != nil || r.late(asked) {
			return found, err
		}
		sleep(ctx, delay)
	}
}

func (r *receiver) verifyOnce(ctx context.Context, v *driver.Verification) ([]driver.HandedRow, error) {
	ctx, cancel := context.WithTimeout(ctx, r.p.databaseTimeout())
	defer cancel()
	return r.p.store.Verify(ctx, v)
}
