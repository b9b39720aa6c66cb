package redisconsumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// taker claims entries: new ones, those that were lost on their way, and those that others have
// left.
type taker struct {
	c         *Consumer
	claims    *claims
	keeper    *keeper
	isolation *isolation
}

// take reads a stream until ctx ends, and takes over what others have left. One goroutine does all
// of it: so nothing that is on its way to us is mistaken for something that was lost.
func (t *taker) take(ctx context.Context, st *stream) {
	var claim time.Time // the next round of take-overs; the first is at once
	failures := 0
	for ctx.Err() == nil {
		err := t.step(ctx, st, &claim)
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return
		}
		failures++
		pause := pauseAfter(failures)
		if _, answered := said(err); !answered {
			// A read of ours may still wait at the server. What it is handed is recovered before
			// anything younger is read.
			pause = max(pause, t.c.block)
		}
		sleep(ctx, pause)
	}
}

// step does the next thing that is to be done for a stream. What is older comes first: what was
// lost on its way to us, what others have left, and only then what is new.
func (t *taker) step(ctx context.Context, st *stream, claim *time.Time) error {
	if st.unsure.Swap(false) {
		st.mustRecover = true
	}
	switch now := time.Now(); {
	case !st.ready:
		err := t.c.ensure(ctx, st)
		if errors.Is(err, errNoBackfill) {
			sleep(ctx, t.c.block)
			return nil
		}
		return t.attend(ctx, st, "join", now, err)
	case !t.mayTake(st):
		sleep(ctx, backfillPause)
		return nil
	case t.claims.room(st) == 0:
		t.awaitRoom(ctx, st)
		return nil
	case st.mustRecover:
		all, err := t.recover(ctx, st)
		st.mustRecover = !all
		return t.attend(ctx, st, "recover", now, err)
	case !now.Before(*claim) || !now.Before(st.rest.due()):
		all, err := t.claim(ctx, st)
		if all {
			*claim = now.Add(t.rhythm())
		}
		return t.attend(ctx, st, "claim", now, err)
	default:
		patience := min(t.c.block, time.Until(*claim), time.Until(st.rest.due()))
		if st.primary != nil { // it needs no connection of its own, and looks after its stream again soon
			patience = leastBlock
			if st.idle.Load() {
				sleep(ctx, min(backfillPause, t.c.block))
			}
		}
		return t.attend(ctx, st, "read", now, t.read(ctx, st, patience))
	}
}

// rhythm is the pause between two rounds of take-overs: half of the time after which an entry
// may be taken over, not for all consumers at the same moment.
func (t *taker) rhythm() time.Duration {
	return time.Duration(float64(t.c.claimAfter) * (0.4 + 0.2*rand.Float64()))
}

// attend keeps the account of outages, and of groups that are gone.
func (t *taker) attend(ctx context.Context, st *stream, what string, begun time.Time, err error) error {
	switch {
	case err == nil:
		t.c.outages.end(ctx, st, what, begun)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case isNoGroup(err):
		t.c.log.ErrorContext(ctx, "consumer group deleted",
			"stream", st.name, "group", t.c.group, "from", st.start, "error", err)
		st.ready = false
		st.counters.recreated.Add(1)
		return nil
	default:
		if what != "join" {
			st.mustRecover = true
		}
		t.c.outages.begin(ctx, st, what, err)
	}
	return err
}

// mayTake reports whether a stream may take entries now: a backfill only while its stream has
// nothing new and few of its own wait for a worker.
func (t *taker) mayTake(st *stream) bool {
	if st.primary == nil {
		return true
	}
	t.claims.mu.Lock()
	defer t.claims.mu.Unlock()
	return st.primary.idle.Load() && !t.claims.queues.urgent()
}

// read claims new entries. It waits for them at most for so long.
func (t *taker) read(ctx context.Context, st *stream, block time.Duration) error {
	t.isolation.exclusive.RLock()
	defer t.isolation.exclusive.RUnlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	room := t.claims.room(st)
	if room == 0 { // by now: a payload was fetched again meanwhile. Without a number the server would send all there is
		return nil
	}
	// The answer is not to be lost when ctx ends: what it holds is pending for us.
	ctx = context.WithoutCancel(ctx)
	pipe := t.c.client.Pipeline() // which only builds the command, with its patience
	cmd := pipe.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: t.c.group, Consumer: t.c.name, Streams: []string{st.name, ">"}, Count: int64(room), Block: max(block, leastBlock),
	})
	pipe.Discard()
	if err := t.c.client.Process(ctx, once{cmd}); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	var items []*item
	for _, stream := range cmd.Val() {
		for _, entry := range stream.Messages {
			it, err := t.c.newItem(st, entry.ID, 1, stringFields(entry.Values))
			if err != nil {
				return err
			}
			items = append(items, it)
		}
	}
	st.idle.Store(len(items) == 0)
	t.claims.admit(st, items)
	return nil
}

// A row is a pending entry as XPENDING has it.
type row = redis.XPendingExt

// page is how many pending entries are looked at in one call.
const page = 100

// pages calls f with the pending entries of a stream that have been idle for so long, those of one
// owner or of all, page by page, until f reports that it has enough.
func (t *taker) pages(ctx context.Context, st *stream, idle time.Duration, owner string, f func([]row) (enough bool, err error)) error {
	for from := "-"; ; {
		rows, err := t.c.client.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: st.name, Group: t.c.group, Idle: idle, Start: from, End: "+", Count: page, Consumer: owner,
		}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		last, err := parseID(rows[len(rows)-1].ID)
		if err != nil {
			return err
		}
		if enough, err := f(t.strange(st, rows)); enough || err != nil || len(rows) < page {
			return err
		}
		from = last.next().String()
	}
}

// strange leaves out what is claimed, and what rests.
func (t *taker) strange(st *stream, rows []row) (others []row) {
	now := time.Now()
	t.claims.mu.Lock()
	defer t.claims.mu.Unlock()
	for _, r := range rows {
		if st.items[r.ID] == nil && !st.rest.holds(r.ID, now) {
			others = append(others, r)
		}
	}
	return others
}

// recover claims what is pending for us without our knowing: the answer to a read or a script was
// lost, or an earlier process with our name has died. Only the latter counts as a delivery. It
// reports whether that was all.
func (t *taker) recover(ctx context.Context, st *stream) (all bool, err error) {
	return t.takeOver(ctx, st, 0, t.c.name)
}

// claim takes over what consumers have left that gave no sign of life, and what was lost on its way
// to us. It reports whether that was all.
func (t *taker) claim(ctx context.Context, st *stream) (all bool, err error) {
	st.rest.wake(time.Now())
	if all, err = t.recover(ctx, st); !all {
		return false, err
	}
	if all, err = t.takeOver(ctx, st, t.c.claimAfter, ""); !all {
		return false, err
	}
	return true, t.keeper.tidy(ctx, st)
}

// takeOver takes the pending entries of an owner, or of all, that have been idle for so long, as
// far as there is room. Those that were handed out often may crash the process that handles them:
// they are not taken along with others. It reports whether that was all.
func (t *taker) takeOver(ctx context.Context, st *stream, idle time.Duration, owner string) (all bool, err error) {
	var crashed []row
	all = true
	err = t.pages(ctx, st, idle, owner, func(rows []row) (bool, error) {
		var plain []row
		for _, r := range rows {
			if r.RetryCount >= isolateAfter {
				crashed = append(crashed, r)
			} else {
				plain = append(plain, r)
			}
		}
		if room := t.claims.room(st); len(plain) > room {
			all, plain = false, plain[:room]
		}
		if len(crashed) >= page {
			all = false
		}
		return !all, t.adopt(ctx, st, idle, plain)
	})
	if err == nil && len(crashed) > 0 {
		err = t.isolation.isolate(ctx, st, idle, crashed)
	}
	return all && err == nil, err
}

// adopt claims entries that are as rows has them.
func (t *taker) adopt(ctx context.Context, st *stream, idle time.Duration, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	t.isolation.exclusive.RLock()
	defer t.isolation.exclusive.RUnlock()
	items, err := t.c.claimRows(ctx, st, idle, rows, true)
	if err != nil {
		return err
	}
	t.claims.admit(st, items)
	return nil
}
