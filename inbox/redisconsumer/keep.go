package redisconsumer

import (
	"context"
	"slices"
	"time"
)

// keeper does at the server what becomes of claimed entries: it renews, returns, acknowledges and
// forwards them.
type keeper struct {
	c      *Consumer
	claims *claims
}

// atOnce bounds the entries of one call of a script: other clients of the server wait meanwhile.
const atOnce = 200

// own renews, releases or charges items, as own.lua says. Those that are no longer ours are
// surrendered.
func (k *keeper) own(ctx context.Context, st *stream, items []*item, idle time.Duration, charge int64) error {
	st.own.Lock()
	defer st.own.Unlock()
	for len(items) > 0 {
		some := items[:min(len(items), atOnce)]
		items = items[len(some):]
		if err := k.ownSome(ctx, st, some, idle, charge); err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) ownSome(ctx context.Context, st *stream, items []*item, idle time.Duration, charge int64) error {
	there, args := k.claims.present(items, k.c.group, k.c.name, idle.Milliseconds(), charge)
	if len(there) == 0 {
		return nil
	}
	answers, err := ownScript.numbers(ctx, k.c.client, len(there), st.name, args...)
	if err != nil {
		return err
	}
	var notOurs []*item
	k.claims.mu.Lock()
	for i, it := range there {
		if answers[i] == 0 {
			notOurs = append(notOurs, it)
			continue
		}
		it.gone = answers[i] == 2
		it.count = max(it.count+charge, 0)
	}
	k.claims.mu.Unlock()
	for _, it := range notOurs {
		k.claims.surrender(it)
	}
	return nil
}

// renew shows signs of life for everything that is claimed, until ctx ends.
func (k *keeper) renew(ctx context.Context, st *stream) {
	rhythm := k.c.claimAfter / (renewals + 1)
	for failures := 0; ; {
		pause := rhythm
		if failures > 0 {
			pause = min(rhythm, pauseAfter(failures))
		}
		if !sleep(ctx, pause) {
			return
		}
		begun := time.Now()
		items := k.claims.claimed(st, func(it *item) bool { return !it.lent && !it.gone && it.state != lost })
		if len(items) == 0 {
			continue // and nothing is known of the server
		}
		err := k.own(ctx, st, items, 0, 0)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			k.c.outages.end(ctx, st, "renew", begun)
		case isNoGroup(err): // the reader brings it back; then everything turns out not to be ours
			failures = 0
		default:
			failures++
			k.c.outages.begin(ctx, st, "renew", err)
		}
	}
}

// What release is for.
func idle(it *item) bool {
	return it.state == waiting && (it.queue == nil || it.queue.state != queueBusy)
}
func everything(it *item) bool { return it.state == waiting }

// release makes claimed entries that are not being handled available to others at once. No attempt
// is charged.
func (k *keeper) release(ctx context.Context, which func(*item) bool) {
	ctx, cancel := context.WithTimeout(ctx, flushGrace)
	defer cancel()
	for _, st := range k.c.streams {
		items := k.claims.claimed(st, which)
		if len(items) == 0 {
			continue
		}
		err := k.own(ctx, st, items, k.c.claimAfter, -1)
		if err != nil {
			k.c.log.WarnContext(ctx, "messages not released",
				"stream", st.name, "messages", len(items), "after", k.c.claimAfter, "error", err)
		}
		k.claims.mu.Lock()
		var gone []string
		for _, it := range items {
			if st.items[it.position] == it {
				if it.gone {
					gone = append(gone, it.position)
				}
				k.claims.forget(it)
			}
		}
		k.claims.mu.Unlock()
		for _, position := range gone {
			k.c.trimmed(ctx, st, position)
		}
	}
}

// leave takes the consumer out of its groups, where nothing is pending for it.
func (k *keeper) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushGrace)
	defer cancel()
	for _, st := range k.c.streams {
		if !st.ready {
			continue
		}
		if _, err := leaveScript.run(ctx, k.c.client, []string{st.name}, k.c.group, k.c.name); err != nil && !isNoGroup(err) {
			k.c.log.WarnContext(ctx, "consumer could not leave its group",
				"stream", st.name, "error", err)
		}
	}
}

// tidy removes consumers from the group that have nothing pending and have not been heard of for
// long: processes that have died.
func (k *keeper) tidy(ctx context.Context, st *stream) error {
	consumers, err := k.c.client.XInfoConsumers(ctx, st.name, k.c.group).Result()
	if err != nil {
		return err
	}
	for _, consumer := range consumers {
		if consumer.Name != k.c.name && consumer.Pending == 0 && consumer.Idle > tidyAfter*k.c.claimAfter {
			if _, err := leaveScript.run(ctx, k.c.client, []string{st.name}, k.c.group, consumer.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidyAfter is how many times longer a consumer has to be silent than its entries, to be removed.
// One that lives comes back by itself.
const tidyAfter = 20

// acknowledge acknowledges what was handled. While one call is on its way, others gather for the
// next. When ctx ends it acknowledges the rest, for a bounded time.
func (k *keeper) acknowledge(ctx context.Context, st *stream) {
	for {
		select {
		case <-st.toAck:
			k.flush(ctx, st, ctx.Done())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushGrace)
			defer cancel()
			k.flush(last, st, last.Done())
			if n := len(k.claims.unacknowledged(st)); n > 0 {
				k.c.log.WarnContext(last, "handled messages not acknowledged",
					"stream", st.name, "messages", n)
			}
			return
		}
	}
}

// flush acknowledges until there is nothing left, or end.
func (k *keeper) flush(ctx context.Context, st *stream, end <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	for failures := 0; ; {
		items := k.claims.unacknowledged(st)
		if len(items) == 0 {
			return
		}
		begun := time.Now()
		err := k.acknowledgeSome(ctx, st, items)
		if err == nil {
			failures = 0
			k.c.outages.end(ctx, st, "acknowledge", begun)
			continue
		}
		failures++
		if !isNoGroup(err) {
			k.c.outages.begin(ctx, st, "acknowledge", err)
		}
		timer := time.NewTimer(pauseAfter(failures))
		select {
		case <-timer.C:
		case <-end:
			timer.Stop()
			return
		}
	}
}

// acknowledgeSome acknowledges the first items of those that are due.
func (k *keeper) acknowledgeSome(ctx context.Context, st *stream, items []*item) error {
	there, args := k.claims.present(items, k.c.group, k.c.name)
	var answers []int64
	if len(there) > 0 {
		var err error
		if answers, err = ackScript.numbers(ctx, k.c.client, len(there), st.name, args...); err != nil {
			return err
		}
	}
	k.claims.mu.Lock()
	defer k.claims.mu.Unlock()
	for i, it := range there {
		if answers[i] < 0 {
			st.counters.lost.Add(1)
			k.c.log.WarnContext(ctx, "message taken over by another consumer after it was handled", "stream", st.name, "entry", it.position)
		}
	}
	st.acks = slices.Delete(st.acks, 0, len(items))
	for _, it := range items {
		k.claims.forget(it)
	}
	return nil
}
