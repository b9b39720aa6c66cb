package redisconsumer

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox/consumer"
	"github.com/gorm-fanout/fanout/internal/redisreply"
)

// take reads a stream until ctx ends, and takes over what others have left. One goroutine does all
// of it: so nothing that is on its way to us is mistaken for something that was lost.
func (r *run) take(ctx context.Context, f *feed) {
	var round time.Time // the next one of take-overs; the first is at once
	failures := 0
	for ctx.Err() == nil {
		err := r.step(ctx, f, &round)
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return
		}
		failures++
		pause := consumer.PauseAfter(failures)
		if _, answered := redisreply.Text(err); !answered {
			// A read of ours may still wait at the server. What it is handed is recovered before
			// anything younger is read.
			pause = max(pause, r.config.Block)
		}
		consumer.Pause(ctx, pause)
	}
}

// step does the next thing that is to be done for a stream. What is older comes first: what was
// lost on its way to us, what others have left, and only then what is new.
func (r *run) step(ctx context.Context, f *feed, round *time.Time) error {
	if f.unsure.Swap(false) {
		f.mustRecover, f.recovered = true, ""
	}
	next := *round
	if rested := r.rested(f); rested.Before(next) {
		next = rested
	}
	switch now := time.Now(); {
	case !f.ready:
		err := r.ensure(ctx, f)
		if errors.Is(err, errNoBackfill) {
			consumer.Pause(ctx, r.config.Block)
			return nil
		}
		return r.attend(ctx, f, "join", now, err)
	case !r.mayTake(f):
		consumer.Pause(ctx, backfillPause)
		return nil
	case r.roomIn(f) == 0:
		r.awaitRoom(ctx, f)
		return nil
	case f.mustRecover:
		all, err := r.recover(ctx, f)
		f.mustRecover = !all
		return r.attend(ctx, f, "recover", now, err)
	case !now.Before(next):
		all, err := r.takeOverAll(ctx, f)
		if all {
			*round = now.Add(r.rhythm())
		}
		return r.attend(ctx, f, "claim", now, err)
	default:
		patience := min(r.config.Block, time.Until(next))
		if f.primary != nil { // it needs no connection of its own, and looks after its stream again soon
			patience = leastBlock
			if f.idle.Load() {
				consumer.Pause(ctx, min(backfillPause, r.config.Block))
			}
		}
		return r.attend(ctx, f, "read", now, r.read(ctx, f, patience))
	}
}

// rhythm is the pause between two rounds of take-overs: half of the time after which an entry
// may be taken over, not for all members of the group at the same moment.
func (r *run) rhythm() time.Duration {
	return time.Duration(float64(r.config.ClaimAfter) * (0.4 + 0.2*rand.Float64()))
}

// attend keeps the account of outages, and of groups that are gone.
func (r *run) attend(ctx context.Context, f *feed, what string, begun time.Time, err error) error {
	switch {
	case err == nil:
		r.succeeded(ctx, f.stream, what, begun)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case isNoGroup(err):
		r.log.ErrorContext(ctx, "consumer group deleted", "stream", f.name, "from", f.start, "error", err)
		f.ready = false
		f.counters.recreated.Add(1)
		return nil
	default:
		if what != "join" {
			f.mustRecover, f.recovered = true, ""
		}
		r.failed(ctx, f.stream, what, err)
	}
	return err
}

// mayTake reports whether a stream may take entries now: a backfill only while its stream has
// nothing new and few of its own wait for a worker.
func (r *run) mayTake(f *feed) bool {
	if f.primary == nil {
		return true
	}
	_, urgent := r.Ready()
	return f.primary.idle.Load() && !urgent
}

// read claims new entries. It waits for up to that time.
func (r *run) read(ctx context.Context, f *feed, block time.Duration) error {
	r.exclusive.RLock()
	defer r.exclusive.RUnlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.unsure.Load() { // one was handled alone meanwhile: what was given back for it comes first
		return nil
	}
	room := r.roomIn(f)
	if room == 0 { // by now: a payload was fetched again meanwhile. Without a number the server would send all there is
		return nil
	}
	// The answer is not to be lost when ctx ends: what it holds is pending for us.
	ctx = context.WithoutCancel(ctx)
	pipe := r.client.Pipeline() // which only builds the command, with its patience
	cmd := pipe.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: r.group, Consumer: r.config.Name, Streams: []string{f.name, ">"}, Count: int64(room), Block: max(block, leastBlock),
	})
	pipe.Discard()
	if err := r.client.Process(ctx, once{cmd}); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	var all []*delivery
	for _, stream := range cmd.Val() {
		for _, entry := range stream.Messages {
			d, err := r.newDelivery(f, entry.ID, 1, stringFields(entry.Values))
			if err != nil {
				return err
			}
			all = append(all, d)
		}
	}
	f.idle.Store(len(all) == 0)
	r.admit(f, all) //nolint:contextcheck // handlers outlive ctx: they have the session's
	return nil
}

// A pending entry is a row of XPENDING.
type pending = redis.XPendingExt

// page is how many pending entries are looked at in one call.
const page = 100

// pages calls do with the pending entries of a stream that have been idle for so long, those of one
// owner or of all, page by page from one on ("" = the first), until it reports that it has enough.
func (r *run) pages(ctx context.Context, f *feed, idle time.Duration, owner, from string, do func([]pending) (enough bool, err error)) error {
	for from = cmp.Or(from, "-"); ; {
		rows, err := r.client.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: f.name, Group: r.group, Idle: idle, Start: from, End: "+", Count: page, Consumer: owner,
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
		if enough, err := do(r.strange(f, rows)); enough || err != nil || len(rows) < page {
			return err
		}
		from = last.next().String()
	}
}

// strange leaves out what is claimed, and what rests.
func (r *run) strange(f *feed, rows []pending) (others []pending) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		if f.claims[row.ID] == nil && !now.Before(f.rest[row.ID]) {
			others = append(others, row)
		}
	}
	return others
}

// recover claims what is pending for us without our knowing: the answer to a read or a script was
// lost, or an earlier process with our name has died, or it was given back while another one was
// handled alone. It reports whether that was all.
func (r *run) recover(ctx context.Context, f *feed) (all bool, err error) {
	// What was come by already is claimed, or was set aside: it can be much, where a key has many followers.
	if all, f.recovered, err = r.takeOver(ctx, f, 0, r.config.Name, f.recovered); all {
		f.recovered = ""
		r.mu.Lock()
		clear(f.returned) // the rest has others
		r.mu.Unlock()
	}
	return all, err
}

// takeOverAll takes over what members have left that gave no sign of life, and what was lost on its way
// to us. It reports whether that was all.
func (r *run) takeOverAll(ctx context.Context, f *feed) (all bool, err error) {
	r.wake(f, time.Now())
	if all, err = r.recover(ctx, f); !all {
		return false, err
	}
	if all, _, err = r.takeOver(ctx, f, r.config.ClaimAfter, "", ""); !all {
		return false, err
	}
	return true, r.tidy(ctx, f)
}

// takeOver takes the pending entries of an owner, or of all, that have been idle for so long, as
// far as there is room, from one on ("" = the first). Those that were handed out often may crash the
// process that handles them: they are not taken along with others. It reports whether that was all,
// and where the rest begins.
func (r *run) takeOver(ctx context.Context, f *feed, idle time.Duration, owner, from string) (all bool, rest string, err error) {
	var crashed []pending
	all, rest = true, from
	err = r.pages(ctx, f, idle, owner, from, func(rows []pending) (bool, error) {
		var plain []pending
		for _, row := range rows {
			if row.RetryCount >= isolateAfter {
				crashed = append(crashed, row)
			} else {
				plain = append(plain, row)
			}
		}
		behind := ""
		if room := r.roomIn(f); len(plain) > room {
			all, behind, plain = false, plain[room].ID, plain[:room]
		}
		if len(crashed) >= page {
			all = false
		}
		done, err := r.adopt(ctx, f, idle, plain)
		if all = all && done; done && behind != "" {
			rest = behind
		}
		return !all, err
	})
	if err == nil && len(crashed) > 0 {
		err = r.isolate(ctx, f, idle, crashed)
	}
	return all && err == nil, rest, err
}

// adopt claims entries that are as rows has them. It is not done where one was handled alone meanwhile:
// what was given back for it comes first.
func (r *run) adopt(ctx context.Context, f *feed, idle time.Duration, rows []pending) (done bool, err error) {
	if len(rows) == 0 {
		return true, nil
	}
	r.exclusive.RLock()
	defer r.exclusive.RUnlock()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if f.unsure.Load() {
		return false, nil
	}
	all, err := r.claimRows(ctx, f, idle, rows, true)
	if err != nil {
		return false, err
	}
	r.admit(f, all) //nolint:contextcheck // handlers outlive ctx: they have the session's
	return true, nil
}

// claimRows makes entries ours that are as rows has them. Where charge is set it counts as a
// delivery, unless it is only the answer to one that was lost.
func (r *run) claimRows(ctx context.Context, f *feed, idle time.Duration, rows []pending, charge bool) ([]*delivery, error) {
	args := []any{r.group, r.config.Name, idle.Milliseconds()}
	r.mu.Lock()
	for _, row := range rows {
		growth := 1
		if !charge || row.Consumer == r.config.Name && !r.config.named && !f.returned[row.ID] {
			growth = 0
		}
		delete(f.returned, row.ID)
		args = append(args, row.ID, row.Consumer, row.RetryCount, growth)
	}
	r.mu.Unlock()
	answer, err := claimScript.run(context.WithoutCancel(ctx), r.client, []string{f.name}, args...)
	if err != nil {
		return nil, err
	}
	entries, err := entriesOf(answer)
	if err != nil {
		return nil, err
	}
	var all []*delivery
	for _, e := range entries {
		if e.fields == nil {
			r.trimmed(ctx, f, e.id)
			continue
		}
		d, err := r.newDelivery(f, e.id, e.count, e.fields)
		if err != nil {
			return nil, err
		}
		f.counters.takenOver.Add(1)
		all = append(all, d)
	}
	return all, nil
}

// trimmed reports an entry that no process will ever handle.
func (r *run) trimmed(ctx context.Context, f *feed, position string) {
	f.counters.trimmed.Add(1)
	r.log.ErrorContext(ctx, "message trimmed before it was handled", "stream", f.name, "entry", position)
}

// stringFields are the fields of an entry as the client has them.
func stringFields(values map[string]any) map[string]string {
	fields := make(map[string]string, len(values))
	for name, value := range values {
		fields[name], _ = value.(string)
	}
	return fields
}
