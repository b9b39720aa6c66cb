package redisconsumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// atOnce bounds the entries of one call of a script: other clients of the server wait meanwhile.
const atOnce = 200

// errTakenOver is what is wrong with a confirmation of an entry that is another member's.
var errTakenOver = errors.New("redisconsumer: another member of the group had taken the message over after it was handled")

// own renews, releases, charges or acknowledges entries, as own.lua says and what, with the lock held, decides.
// It returns those that are not ours any more, with the answers about them, also where there is an error.
func (r *run) own(ctx context.Context, f *feed, all []*delivery, what func(*delivery) (idle any, charge int64)) (notOurs map[*delivery]int64, err error) {
	f.own.Lock()
	defer f.own.Unlock()
	notOurs = map[*delivery]int64{}
	for some := range slices.Chunk(all, atOnce) {
		var there []*delivery
		args := []any{r.group, r.config.Name}
		r.mu.Lock()
		for _, d := range some {
			if f.claims[d.position] == d && !d.gone {
				idle, charge := what(d)
				there, args = append(there, d), append(args, d.position, d.count, idle, charge)
			}
		}
		r.mu.Unlock()
		if len(there) == 0 {
			continue
		}
		answers, err := ownScript.numbers(ctx, r.client, len(there), f.name, args...)
		if err != nil {
			return notOurs, err
		}
		r.mu.Lock()
		for i, d := range there {
			if answers[i] < 1 {
				notOurs[d] = answers[i]
				continue
			}
			_, charge := what(d)
			d.gone, d.count = answers[i] == 2, max(d.count+charge, 0)
		}
		r.mu.Unlock()
	}
	return notOurs, nil
}

// ensureOurs renews entries, and charges them. Those that are no longer ours are surrendered.
func (r *run) ensureOurs(ctx context.Context, f *feed, all []*delivery, charge int64) error {
	notOurs, err := r.own(ctx, f, all, func(*delivery) (any, int64) { return 0, charge })
	r.surrender(ctx, f, slices.Collect(maps.Keys(notOurs)))
	return err
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
			r.log.WarnContext(ctx, "message taken over by another member", "stream", f.name, "entry", d.position)
		}
		r.forget(d)
	}
	r.mu.Unlock()
	if len(lost) > 0 {
		r.withdraw(lost) //nolint:contextcheck // what the session gives up is not bound to the call that has found it out
	}
}

// withdraw tells the session that entries are not ours any more.
func (r *run) withdraw(lost map[*delivery]bool) {
	now, cancel := context.WithCancel(r.Context())
	cancel()
	r.Withdraw(now, func(e *consumer.Entry) bool { return lost[deliveryOf(e)] })
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
	rhythm := r.config.ClaimAfter / (renewals + 1)
	for failures := 0; ; {
		pause := rhythm
		if failures > 0 {
			pause = min(rhythm, consumer.PauseAfter(failures))
		}
		if !consumer.Pause(ctx, pause) {
			return
		}
		begun := time.Now()
		ours := r.chosen(f, func(d *delivery) bool { return !d.gone && d.state != released })
		if len(ours) == 0 {
			continue // and nothing is known of the server
		}
		err := r.ensureOurs(ctx, f, ours, 0)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			r.succeeded(ctx, f.stream, "renew", begun)
		case isNoGroup(err): // the reader brings it back; then everything turns out not to be ours
			failures = 0
		default:
			failures++
			r.failed(ctx, f.stream, "renew", err)
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
			if n := len(r.due(f)); n > 0 {
				r.log.WarnContext(last, "last confirmations not answered", "stream", f.name, "messages", n, "waited", flushGrace)
			}
			return
		}
	}
}

// due are entries that are to be settled next.
func (r *run) due(f *feed) []*delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(f.due[:min(len(f.due), atOnce)])
}

// flush settles until there is nothing left, or end.
func (r *run) flush(ctx context.Context, f *feed, end <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	failures := 0
	for due := r.due(f); len(due) > 0; due = r.due(f) {
		begun := time.Now()
		err := r.settleSome(ctx, f, due)
		if err == nil {
			failures = 0
			r.succeeded(ctx, f.stream, "settle", begun)
			continue
		}
		failures++
		if !isNoGroup(err) {
			r.failed(ctx, f.stream, "settle", err)
		}
		if consumer.Within(end, consumer.PauseAfter(failures)) {
			return
		}
	}
}

// settleSome settles the first entries of those that are due.
func (r *run) settleSome(ctx context.Context, f *feed, due []*delivery) error {
	notOurs, err := r.own(ctx, f, due, func(d *delivery) (idle any, charge int64) {
		if d.state == handled {
			return "ack", 0
		}
		return d.idle.Milliseconds(), d.charge
	})
	if err != nil {
		return err
	}
	var gone, late []string
	r.mu.Lock()
	f.due = slices.Delete(f.due, 0, len(due))
	for _, d := range due {
		answer, taken := notOurs[d]
		switch {
		case d.state == handled && answer < 0:
			late = append(late, d.position)
		case d.state != released: // settled
		case taken:
			f.unsure.Store(true)
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
	for _, position := range late {
		f.counters.lost.Add(1)
		r.AckFailed("ack", f.name+" "+position, errTakenOver)
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
		if _, err := leaveScript.run(ctx, r.client, []string{f.name}, r.group, r.config.Name); err != nil && !isNoGroup(err) {
			r.log.WarnContext(ctx, "member could not leave its group", "stream", f.name, "error", err)
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
		if member.Name != r.config.Name && member.Pending == 0 && member.Idle > tidyAfter*r.config.ClaimAfter {
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
