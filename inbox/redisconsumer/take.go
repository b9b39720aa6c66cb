package redisconsumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// take reads a stream until ctx ends, and takes over what others have left. One goroutine does all
// of it: so nothing that is on its way to us is mistaken for something that was lost.
func (s *session) take(ctx context.Context, st *stream) {
	var claim time.Time // the next round of take-overs; the first is at once
	failures := 0
	for ctx.Err() == nil {
		err := s.step(ctx, st, &claim)
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
			pause = max(pause, s.block)
		}
		sleep(ctx, pause)
	}
}

// step does the next thing that is to be done for a stream. What is older comes first: what was
// lost on its way to us, what others have left, and only then what is new.
func (s *session) step(ctx context.Context, st *stream, claim *time.Time) error {
	if st.unsure.Swap(false) {
		st.mustRecover = true
	}
	switch now := time.Now(); {
	case !st.ready:
		err := s.ensure(ctx, st)
		if errors.Is(err, errNoBackfill) {
			sleep(ctx, s.block)
			return nil
		}
		return s.attend(ctx, st, "join", now, err)
	case !s.mayTake(st):
		sleep(ctx, backfillPause)
		return nil
	case s.room(st) == 0:
		s.awaitRoom(ctx, st)
		return nil
	case st.mustRecover:
		all, err := s.recover(ctx, st)
		st.mustRecover = !all
		return s.attend(ctx, st, "recover", now, err)
	case !now.Before(*claim) || !now.Before(st.rest.due()):
		all, err := s.claim(ctx, st)
		if all {
			*claim = now.Add(s.rhythm())
		}
		return s.attend(ctx, st, "claim", now, err)
	default:
		patience := min(s.block, time.Until(*claim), time.Until(st.rest.due()))
		if st.primary != nil { // it needs no connection of its own, and looks after its stream again soon
			patience = leastBlock
			if st.idle.Load() {
				sleep(ctx, min(backfillPause, s.block))
			}
		}
		return s.attend(ctx, st, "read", now, s.read(ctx, st, patience))
	}
}

// rhythm is the pause between two rounds of take-overs: half of the time after which an entry
// may be taken over, not for all consumers at the same moment.
func (s *session) rhythm() time.Duration {
	return time.Duration(float64(s.claimAfter) * (0.4 + 0.2*rand.Float64()))
}

// attend keeps the account of outages, and of groups that are gone.
func (s *session) attend(ctx context.Context, st *stream, what string, begun time.Time, err error) error {
	switch {
	case err == nil:
		s.outages.end(ctx, st, what, begun)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case isNoGroup(err):
		s.log.ErrorContext(ctx, "consumer group deleted",
			"stream", st.name, "group", s.group, "from", st.start, "error", err)
		st.ready = false
		st.counters.recreated.Add(1)
		return nil
	default:
		if what != "join" {
			st.mustRecover = true
		}
		s.outages.begin(ctx, st, what, err)
	}
	return err
}

// room is how many more entries may be claimed.
func (s *session) room(st *stream) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomOf(st)
}

// read claims new entries. It waits for them at most for so long.
func (s *session) read(ctx context.Context, st *stream, block time.Duration) error {
	s.isolation.RLock()
	defer s.isolation.RUnlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The answer is not to be lost when ctx ends: what it holds is pending for us.
	ctx = context.WithoutCancel(ctx)
	pipe := s.client.Pipeline() // which only builds the command, with its patience
	cmd := pipe.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: s.group, Consumer: s.name, Streams: []string{st.name, ">"}, Count: int64(s.room(st)), Block: max(block, leastBlock),
	})
	pipe.Discard()
	if err := s.client.Process(ctx, once{cmd}); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	var items []*item
	for _, stream := range cmd.Val() {
		for _, entry := range stream.Messages {
			it, err := s.newItem(st, entry.ID, 1, stringFields(entry.Values))
			if err != nil {
				return err
			}
			items = append(items, it)
		}
	}
	st.idle.Store(len(items) == 0)
	s.admit(st, items)
	return nil
}

// A row is a pending entry as XPENDING has it.
type row = redis.XPendingExt

// page is how many pending entries are looked at in one call.
const page = 100

// pages calls f with the pending entries of a stream that have been idle for so long, those of one
// owner or of all, page by page, until f reports that it has enough.
func (s *session) pages(ctx context.Context, st *stream, idle time.Duration, owner string, f func([]row) (enough bool, err error)) error {
	for from := "-"; ; {
		rows, err := s.client.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: st.name, Group: s.group, Idle: idle, Start: from, End: "+", Count: page, Consumer: owner,
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
		if enough, err := f(s.strange(st, rows)); enough || err != nil || len(rows) < page {
			return err
		}
		from = last.next().String()
	}
}

// strange leaves out what is claimed, and what rests.
func (s *session) strange(st *stream, rows []row) (others []row) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (s *session) recover(ctx context.Context, st *stream) (all bool, err error) {
	return s.takeOver(ctx, st, 0, s.name)
}

// claim takes over what consumers have left that gave no sign of life, and what was lost on its way
// to us. It reports whether that was all.
func (s *session) claim(ctx context.Context, st *stream) (all bool, err error) {
	st.rest.wake(time.Now())
	if all, err = s.recover(ctx, st); !all {
		return false, err
	}
	if all, err = s.takeOver(ctx, st, s.claimAfter, ""); !all {
		return false, err
	}
	return true, s.tidy(ctx, st)
}

// takeOver takes the pending entries of an owner, or of all, that have been idle for so long, as
// far as there is room. Those that were handed out often may crash the process that handles them:
// they are not taken along with others. It reports whether that was all.
func (s *session) takeOver(ctx context.Context, st *stream, idle time.Duration, owner string) (all bool, err error) {
	var crashed []row
	all = true
	err = s.pages(ctx, st, idle, owner, func(rows []row) (bool, error) {
		var plain []row
		for _, r := range rows {
			if r.RetryCount >= isolateAfter {
				crashed = append(crashed, r)
			} else {
				plain = append(plain, r)
			}
		}
		if room := s.room(st); len(plain) > room {
			all, plain = false, plain[:room]
		}
		if len(crashed) >= page {
			all = false
		}
		return !all, s.adopt(ctx, st, idle, plain)
	})
	if err == nil && len(crashed) > 0 {
		err = s.isolate(ctx, st, idle, crashed)
	}
	return all && err == nil, err
}

// adopt claims entries that are as rows has them.
func (s *session) adopt(ctx context.Context, st *stream, idle time.Duration, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	s.isolation.RLock()
	defer s.isolation.RUnlock()
	items, err := s.claimRows(ctx, st, idle, rows, true)
	if err != nil {
		return err
	}
	s.admit(st, items)
	return nil
}

// claimRows makes entries ours that are as rows has them. Where charge is set it counts as a
// delivery, unless it is only the answer to one that was lost.
func (s *session) claimRows(ctx context.Context, st *stream, idle time.Duration, rows []row, charge bool) ([]*item, error) {
	groups := map[int][]row{} // by what the delivery count grows by
	for _, r := range rows {
		growth := 1
		if !charge || r.Consumer == s.name && !s.named {
			growth = 0
		}
		groups[growth] = append(groups[growth], r)
	}
	var items []*item
	for growth, rows := range groups {
		args := []any{s.group, s.name, idle.Milliseconds(), growth}
		for _, r := range rows {
			args = append(args, r.ID, r.Consumer, r.RetryCount)
		}
		answer, err := claimScript.run(context.WithoutCancel(ctx), s.client, []string{st.name}, args...)
		if err != nil {
			return nil, err
		}
		entries, err := entriesOf(answer)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.fields == nil {
				s.trimmed(ctx, st, e.id)
				continue
			}
			it, err := s.newItem(st, e.id, e.count, e.fields)
			if err != nil {
				return nil, err
			}
			st.counters.takenOver.Add(1)
			items = append(items, it)
		}
	}
	return items, nil
}

// trimmed reports an entry that nobody will ever handle.
func (s *session) trimmed(ctx context.Context, st *stream, position string) {
	st.counters.trimmed.Add(1)
	s.log.ErrorContext(ctx, "message trimmed before it was handled",
		"stream", st.name, "entry", position)
}
