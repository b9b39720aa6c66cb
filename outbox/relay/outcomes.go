package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// outcomes holds the outcomes of one processor that the database did not take. A loop beside the workers
// writes them in ever smaller parts, so that a row that another session has locked, or that the database
// refuses, keeps nothing back but its key. It renews their leases meanwhile: no relay sends them again.
//
// A processor whose outcomes cannot be written must not go on sending. Claims stop with the first outcome
// that fails for another cause than a locked row, and go on with the next one that is written. Where
// nothing of what is held can be written for a lease, one row per lease is claimed to find out.
type outcomes struct {
	p        *Processor
	wake     chan struct{} // something is held
	reported seldom

	mu      sync.Mutex
	parts   []*part
	late    []*part // rows that carry another token by now, for a lease
	stopped bool    // claims are
	trial   time.Time
	changed chan struct{}
}

// A part is some rows of a batch.
type part struct {
	completion driver.Completion
	rows       []driver.Ref // with their message ids
	cause      error        // of the last try

	since       time.Time
	next, renew time.Time // when it is tried, and its lease renewed
	delay       time.Duration
}

const (
	// maxHeld is how many rows may be held while claims go on.
	maxHeld = 1000
	// maxMisses is how many writes may fail in a row before the rest waits for the next pass. It takes
	// fewer to find one row among outbox.MaxBatchSize.
	maxMisses = 16
	// heldDelay bounds the pause between two tries. The row of another session may be claimed as soon as
	// that is done, where its lease is over: lockedDelay is shorter.
	heldDelay   = 5 * time.Second
	lockedDelay = 200 * time.Millisecond
	// heldPatience is how long outcomes are held before that is reported.
	heldPatience = 5 * time.Second
)

// errSwallowed is the cause where the database has accepted an outcome and not changed the row.
var errSwallowed = errors.New("the database accepted the outcome and left the row as it was: a trigger or a policy of its owner's suppresses the change")

func newOutcomes(p *Processor) *outcomes {
	return &outcomes{p: p, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// hold takes what became of a batch over from a worker that could not write it.
func (o *outcomes) hold(ctx context.Context, completion *driver.Completion, messages []driver.Message, err error) {
	now := time.Now()
	held := &part{completion: *completion, cause: err, since: now, next: now, delay: o.p.policy.PollMin}
	for i := range messages {
		held.rows = append(held.rows, ref(&messages[i]))
	}
	o.mu.Lock()
	o.parts = append(o.parts, held)
	locked := errors.Is(err, driver.ErrLocked)
	if !locked && !o.stopped {
		o.stopped, o.trial = true, now.Add(o.p.policy.Lease)
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
	if !locked && o.p.completeFailing.Failed(err) {
		cause, remedy := advised(err, asksDatabase)
		o.p.log.ErrorContext(ctx, "completion failed", "remedy", remedy, "error", cause, "rows", held.size())
	}
}

// enter waits until rows may be claimed; trial says that it is one, to find out whether its outcome can
// be written.
func (o *outcomes) enter(ctx context.Context) (trial bool, err error) {
	for {
		o.mu.Lock()
		full := size(o.parts) >= maxHeld
		changed, wait := o.changed, time.Until(o.trial)
		if trial = o.stopped && !full && wait <= 0; trial {
			o.trial = time.Now().Add(o.p.policy.Lease)
		}
		goes := trial || !o.stopped && !full
		o.mu.Unlock()
		if goes || ctx.Err() != nil {
			return trial, ctx.Err()
		}
		if full {
			wait = o.p.policy.Lease
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// closed reports whether claims stop.
func (o *outcomes) closed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stopped || size(o.parts) >= maxHeld
}

// retry lets another trial follow soon: the last one claimed nothing.
func (o *outcomes) retry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trial = time.Now().Add(o.p.policy.PollMin)
}

// written notes that the database has taken outcomes: claims go on.
func (o *outcomes) written() {
	o.p.completes()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		o.stopped = false
		o.broadcast()
	}
}

func (o *outcomes) broadcast() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// known is a delivery that could not be written before the row's lease was over, where the row comes
// back by that: it needs no second one. A row that an operator has requeued has no crashes.
func (o *outcomes) known(m *driver.Message) (driver.Delivered, bool) {
	if m.Crashes == 0 {
		return driver.Delivered{}, false
	}
	row := ref(m)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, part := range slices.Concat(o.parts, o.late) {
		at := slices.IndexFunc(part.completion.Published, func(d driver.Delivered) bool { return d.ID == m.ID })
		if at >= 0 && slices.Contains(part.rows, row) {
			return part.completion.Published[at], true
		}
	}
	return driver.Delivered{}, false
}

// ref is a row by both of its ids.
func ref(m *driver.Message) driver.Ref {
	id, _ := uuid.Parse(m.MessageID) // what is none is refused before it is sent
	return driver.Ref{ID: m.ID, MessageID: id}
}

// run writes what is held, until the workers are done and nothing is left, or ctx ends.
func (o *outcomes) run(ctx context.Context, done <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-o.wake:
		case <-timer.C:
		case <-done:
			done = nil
			o.hurry()
		case <-ctx.Done():
		}
		o.p.survive(ctx, "write outcomes", func() { o.pass(ctx) })
		next, some := o.report(ctx)
		if !some && done == nil {
			return
		}
		if some {
			timer.Reset(time.Until(next))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.parts) > 0 {
		cause, remedy := advised(o.parts[0].cause, asksDatabase)
		o.p.log.ErrorContext(ctx, "outcome of a batch lost", "remedy", remedy, "error", cause, "rows", size(o.parts))
	}
}

// hurry has everything tried now: the processor stops.
func (o *outcomes) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, part := range o.parts {
		part.next, part.delay = time.Time{}, o.p.policy.PollMin
	}
}

// pass tries what is due, and renews the leases of what remains.
func (o *outcomes) pass(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, o.p.databaseTimeout())
	defer cancel()
	misses := 0
	for _, due := range o.due(time.Now()) {
		o.replace(due, o.write(ctx, due, &misses))
	}
	o.mu.Lock()
	left := slices.Clone(o.parts)
	o.mu.Unlock()
	for _, part := range left {
		if now := time.Now(); part.renewable() && !now.Before(part.renew) && ctx.Err() == nil {
			part.renew = now.Add(o.p.policy.Lease / 3)
			_, _ = o.p.store.Renew(ctx, part.completion.Lease) // where this fails, too, others may get the rows when their lease is over
		}
	}
}

// due are the parts whose pause is over. Their next one begins.
func (o *outcomes) due(now time.Time) (due []*part) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late = slices.DeleteFunc(o.late, func(p *part) bool { return now.Sub(p.next) > o.p.policy.Lease })
	for _, part := range o.parts {
		if !part.next.After(now) {
			due = append(due, part)
			part.next = now.Add(part.delay)
			most := heldDelay
			if errors.Is(part.cause, driver.ErrLocked) {
				most = lockedDelay
			}
			part.delay = min(2*part.delay, max(most, o.p.policy.PollMin))
		}
	}
	return due
}

// replace puts what is left of a part in its place.
func (o *outcomes) replace(tried *part, left []*part) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts = slices.DeleteFunc(o.parts, func(p *part) bool { return p == tried })
	o.parts = append(o.parts, left...)
	if len(o.parts) == 0 { // rows that others have by now say nothing about the next outcome
		o.trial = time.Now()
	}
	o.broadcast()
}

// write tries a part, and its halves where it fails. It returns those that could not be written. Rows
// that are still locked, as far as the database tells, are not tried. A row that cannot be removed is
// marked; where many cannot, all are.
func (o *outcomes) write(ctx context.Context, tried *part, misses *int) (left []*part) {
	if found, _ := o.locked(ctx, tried); len(found) > 0 {
		free, rest := tried.split(found)
		if free.cause = nil; free.size() > 0 {
			left = o.write(ctx, free, misses)
		}
		return append(left, rest)
	}
	if *misses < maxMisses {
		if tried.cause = o.try(ctx, tried); tried.cause == nil {
			*misses = 0
			return nil
		}
		*misses++
	}
	if ctx.Err() != nil {
		return []*part{tried}
	}
	if tried.size() > 1 && *misses < maxMisses {
		first, second := tried.split(tried.rows[len(tried.rows)/2:])
		return append(o.write(ctx, first, misses), o.write(ctx, second, misses)...)
	}
	if tried.completion.DeletePublished && len(tried.completion.Published) > 0 && *misses <= maxMisses {
		marked := *tried
		marked.completion.DeletePublished = false
		if o.try(ctx, &marked) == nil {
			return nil
		}
		*misses++
	}
	return []*part{tried}
}

// try writes a part. Rows that do not carry its token any more may have been written by an earlier try,
// whose answer was lost: no verdict about leases.
func (o *outcomes) try(ctx context.Context, tried *part) error {
	exchanged, err := o.p.store.Exchange(ctx, &tried.completion, nil)
	if err != nil {
		return err
	}
	lost := exchanged.Completed.Lost
	if err := o.p.swallowed(ctx, &tried.completion, lost); err != nil {
		return err
	}
	if lost < tried.size() {
		o.written()
	}
	if lost > 0 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.late = append(o.late, tried)
	}
	return nil
}

// swallowed looks whether rows that a completion did not change are still ours: then it has failed.
func (p *Processor) swallowed(ctx context.Context, completion *driver.Completion, lost int) error {
	if lost == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.databaseTimeout())
	defer cancel()
	kept, err := p.store.Renew(ctx, completion.Lease)
	if err == nil && kept > 0 {
		err = errSwallowed
	}
	return err
}

// locked are the rows of a part that another session has locked, and which one that is, where the
// database tells.
func (o *outcomes) locked(ctx context.Context, of *part) (rows []driver.Ref, session string) {
	if prober, ok := o.p.store.(claims.Prober); ok && errors.Is(of.cause, driver.ErrLocked) {
		rows, session, _ = prober.Locked(ctx, of.completion.Lease.Broker, of.rows) // without an answer it is tried
	}
	return rows, session
}

// split divides a part. The lease of each piece spans its rows, which stand in the order of their ids.
func (p *part) split(at []driver.Ref) (others, these *part) {
	others, these = &part{}, &part{}
	*others, *these = *p, *p
	is := map[int64]*part{}
	for _, piece := range []*part{others, these} {
		piece.rows, piece.completion.Published, piece.completion.Other = nil, nil, nil
	}
	for _, row := range p.rows {
		is[row.ID] = others
	}
	for _, row := range at {
		is[row.ID] = these
	}
	for _, row := range p.rows {
		piece := is[row.ID]
		if lease := &piece.completion.Lease; len(piece.rows) == 0 {
			lease.FirstID, lease.LastID = row.ID, row.ID
		} else {
			lease.LastID = row.ID
		}
		piece.rows = append(piece.rows, row)
	}
	for _, delivered := range p.completion.Published {
		c := &is[delivered.ID].completion
		c.Published = append(c.Published, delivered)
	}
	for _, other := range p.completion.Other {
		c := &is[other.ID].completion
		c.Other = append(c.Other, other)
	}
	return others, these
}

// renewable reports whether the lease of a part can be renewed: a locked row's cannot, nor can anybody
// claim it.
func (p *part) renewable() bool { return !errors.Is(p.cause, driver.ErrLocked) }

func (p *part) size() int { return len(p.completion.Published) + len(p.completion.Other) }

func size(parts []*part) (rows int) {
	for _, part := range parts {
		rows += part.size()
	}
	return rows
}

// report tells of what is held for long, and returns when there is something to do.
func (o *outcomes) report(ctx context.Context) (next time.Time, some bool) {
	o.mu.Lock()
	parts, stopped := slices.Clone(o.parts), o.stopped || size(o.parts) >= maxHeld
	o.mu.Unlock()
	if len(parts) == 0 {
		return next, false
	}
	oldest := parts[0]
	next = oldest.next
	for _, part := range parts {
		if part.next.Before(next) {
			next = part.next
		}
		if part.renewable() && part.renew.Before(next) {
			next = part.renew
		}
		if part.since.Before(oldest.since) {
			oldest = part
		}
	}
	if held := time.Since(oldest.since); held >= heldPatience && o.reported.now() {
		cause, remedy := advised(oldest.cause, asksDatabase)
		bounded, cancel := context.WithTimeout(ctx, o.p.databaseTimeout())
		defer cancel()
		_, session := o.locked(bounded, oldest)
		o.p.log.ErrorContext(ctx, "outcomes not written", "remedy", remedy, "error", cause, "rows", size(parts),
			"for", held.Round(time.Second), "session", session, "claims_stopped", stopped)
	}
	return next, true
}
