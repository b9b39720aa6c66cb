package redisconsumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// atOnce bounds the entries of one call of a script: other clients of the server wait meanwhile.
const atOnce = 200

// errTakenOver is what is wrong with a confirmation of an entry that is another member's.
var errTakenOver = errors.New("redisconsumer: another member of the group had taken the message over after it was handled")

// ensureOurs renews, releases or charges entries, as own.lua says. Those that are no longer ours are
// surrendered.
func (r *run) ensureOurs(ctx context.Context, f *feed, all []*delivery, idle time.Duration, charge int64) error {
	f.own.Lock()
	defer f.own.Unlock()
	for some := range slices.Chunk(all, atOnce) {
		there, args := r.present(some, r.group, r.options.name, idle.Milliseconds(), charge)
		if len(there) == 0 {
			continue
		}
		answers, err := ownScript.numbers(ctx, r.client, len(there), f.name, args...)
		if err != nil {
			return err
		}
		var notOurs []*delivery
		r.mu.Lock()
		for i, d := range there {
			if answers[i] == 0 {
				notOurs = append(notOurs, d)
				continue
			}
			d.gone = answers[i] == 2
			d.count = max(d.count+charge, 0)
		}
		r.mu.Unlock()
		r.surrender(ctx, f, notOurs) //nolint:contextcheck // see there
	}
	return nil
}

// surrender gives up entries that another member has taken over: the contexts of their handlers end,
// and nothing is done to them.
func (r *run) surrender(ctx context.Context, f *feed, all []*delivery) {
	lost := map[*delivery]bool{}
	r.mu.Lock()
	for _, d := range all {
		if f.claims[d.position] != d || d.state == handled {
			continue
		}
		f.unsure.Store(true)
		if d.state == claimed {
			lost[d] = true
			f.counters.lost.Add(1)
			r.log.WarnContext(ctx, "message taken over by another consumer", "stream", f.name, "entry", d.position)
		}
		r.forget(d)
	}
	r.mu.Unlock()
	if len(lost) > 0 {
		now, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel()
		r.Withdraw(now, func(e *session.Entry) bool { return lost[deliveryOf(e)] })
	}
}

// chosen are the claims of a stream that are chosen, with the lock held.
func (r *run) chosen(f *feed, choice func(*delivery) bool) (all []*delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range f.claims {
		if choice(d) {
			all = append(all, d)
		}
	}
	return all
}

// renew shows signs of life for everything that is claimed, until ctx ends.
func (r *run) renew(ctx context.Context, f *feed) {
	rhythm := r.options.claimAfter / (renewals + 1)
	for failures := 0; ; {
		pause := rhythm
		if failures > 0 {
			pause = min(rhythm, pauseAfter(failures))
		}
		if !session.Pause(ctx, pause) {
			return
		}
		begun := time.Now()
		ours := r.chosen(f, func(d *delivery) bool { return !d.gone && d.state != released })
		if len(ours) == 0 {
			continue // and nothing is known of the server
		}
		err := r.ensureOurs(ctx, f, ours, 0, 0)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			r.outages.end(ctx, f.stream, "renew", begun)
		case isNoGroup(err): // the reader brings it back; then everything turns out not to be ours
			failures = 0
		default:
			failures++
			r.outages.begin(ctx, f.stream, "renew", err)
		}
	}
}

// settle acknowledges what was handled, and releases what was given back. While one call is on its way,
// others gather for the next. When ctx ends it does so with the rest, for a bounded time.
func (r *run) settle(ctx context.Context, f *feed) {
	for {
		select {
		case <-f.toSettle:
			r.flush(ctx, f, ctx.Done())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushGrace)
			defer cancel()
			r.flush(last, f, last.Done())
			if acks, back := r.unsettled(f); len(acks)+len(back) > 0 {
				r.log.WarnContext(last, "last confirmations not answered", "stream", f.name, "handled", len(acks), "released", len(back), "waited", flushGrace)
			}
			return
		}
	}
}

// unsettled are entries that are due next.
func (r *run) unsettled(f *feed) (acks, back []*delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(f.acks[:min(len(f.acks), atOnce)]), slices.Clone(f.back[:min(len(f.back), atOnce)])
}

// flush settles until there is nothing left, or end.
func (r *run) flush(ctx context.Context, f *feed, end <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	for failures := 0; ; {
		acks, back := r.unsettled(f)
		begun, what := time.Now(), "acknowledge"
		var err error
		switch {
		case len(acks) > 0:
			err = r.acknowledge(ctx, f, acks)
		case len(back) > 0:
			what, err = "release", r.release(ctx, f, back)
		default:
			return
		}
		if err == nil {
			failures = 0
			r.outages.end(ctx, f.stream, what, begun)
			continue
		}
		failures++
		if !isNoGroup(err) {
			r.outages.begin(ctx, f.stream, what, err)
		}
		if session.Within(end, pauseAfter(failures)) {
			return
		}
	}
}

// acknowledge acknowledges the first entries of those that are due.
func (r *run) acknowledge(ctx context.Context, f *feed, acks []*delivery) error {
	there, args := r.present(acks, r.group, r.options.name)
	var answers []int64
	if len(there) > 0 {
		var err error
		if answers, err = ackScript.numbers(ctx, r.client, len(there), f.name, args...); err != nil {
			return err
		}
	}
	for i, d := range there {
		if answers[i] < 0 {
			f.counters.lost.Add(1)
			r.AckFailed("ack", f.name+" "+d.position, errTakenOver)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.acks = slices.Delete(f.acks, 0, len(acks))
	for _, d := range acks {
		r.forget(d)
	}
	return nil
}

// release makes the first entries of those that were given back available to others.
func (r *run) release(ctx context.Context, f *feed, back []*delivery) error {
	n := 1 // those that are released alike
	for n < len(back) && back[n].idle == back[0].idle && back[n].charge == back[0].charge {
		n++
	}
	back = back[:n]
	if err := r.ensureOurs(ctx, f, back, back[0].idle, back[0].charge); err != nil {
		return err
	}
	var gone []string
	r.mu.Lock()
	f.back = slices.Delete(f.back, 0, n)
	for _, d := range back {
		switch {
		case f.claims[d.position] != d: // another's
		case d.gone:
			gone = append(gone, d.position)
		case d.alone == nil:
			f.returned[d.position] = true
		}
		r.forget(d)
	}
	r.mu.Unlock()
	for _, position := range gone {
		r.trimmed(ctx, f, position)
	}
	return nil
}

// leave takes us out of the groups, where nothing is pending for us.
func (r *run) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushGrace)
	defer cancel()
	for _, f := range r.feeds {
		if !f.ready {
			continue
		}
		if _, err := leaveScript.run(ctx, r.client, []string{f.name}, r.group, r.options.name); err != nil && !isNoGroup(err) {
			r.log.WarnContext(ctx, "consumer could not leave its group", "stream", f.name, "error", err)
		}
	}
}

// tidy removes members from the group that have nothing pending and have not been heard of for
// long: processes that have died.
func (r *run) tidy(ctx context.Context, f *feed) error {
	members, err := r.client.XInfoConsumers(ctx, f.name, r.group).Result()
	if err != nil {
		return err
	}
	for _, member := range members {
		if member.Name != r.options.name && member.Pending == 0 && member.Idle > tidyAfter*r.options.claimAfter {
			if _, err := leaveScript.run(ctx, r.client, []string{f.name}, r.group, member.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidyAfter is how many times longer a member has to be silent than its entries, to be removed.
// One that lives comes back by itself.
const tidyAfter = 20
