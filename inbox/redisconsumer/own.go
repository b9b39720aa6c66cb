package redisconsumer

import (
	"context"
	"time"
)

// atOnce bounds the entries of one call of a script: other clients of the server wait meanwhile.
const atOnce = 200

// claimed are the items of a stream that are chosen. The choice is made with the lock held.
func (s *session) claimed(st *stream, chosen func(*item) bool) (items []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range st.items {
		if chosen(it) {
			items = append(items, it)
		}
	}
	return items
}

// own renews items, or gives them back, or charges them, as own.lua has it. What turns out not to
// be ours any more is surrendered.
func (s *session) own(ctx context.Context, st *stream, items []*item, idle time.Duration, charge int64) error {
	st.own.Lock()
	defer st.own.Unlock()
	for len(items) > 0 {
		some := items[:min(len(items), atOnce)]
		items = items[len(some):]
		if err := s.ownSome(ctx, st, some, idle, charge); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) ownSome(ctx context.Context, st *stream, items []*item, idle time.Duration, charge int64) error {
	args := []any{s.group, s.name, idle.Milliseconds(), charge}
	there := make([]*item, 0, len(items))
	s.mu.Lock()
	for _, it := range items {
		if st.items[it.position] == it && !it.gone {
			there = append(there, it)
			args = append(args, it.position, it.count)
		}
	}
	s.mu.Unlock()
	if len(there) == 0 {
		return nil
	}
	answers, err := ownScript.numbers(ctx, s.client, len(there), st.name, args...)
	if err != nil {
		return err
	}
	var notOurs []*item
	s.mu.Lock()
	for i, it := range there {
		if answers[i] == 0 {
			notOurs = append(notOurs, it)
			continue
		}
		it.gone = answers[i] == 2
		it.count = max(it.count+charge, 0)
	}
	s.mu.Unlock()
	for _, it := range notOurs {
		s.surrender(it)
	}
	return nil
}

// renew shows signs of life for everything that is claimed, until ctx ends.
func (s *session) renew(ctx context.Context, st *stream) {
	rhythm := s.claimAfter / (renewals + 1)
	for failures := 0; ; {
		pause := rhythm
		if failures > 0 {
			pause = min(rhythm, pauseAfter(failures))
		}
		if !sleep(ctx, pause) {
			return
		}
		begun := time.Now()
		items := s.claimed(st, func(it *item) bool { return !it.lent && !it.gone && it.state != lost })
		if len(items) == 0 {
			continue // and nothing is known of the server
		}
		err := s.own(ctx, st, items, 0, 0)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			s.outages.end(ctx, st, "renew", begun)
		case isNoGroup(err): // the reader brings it back; then everything turns out not to be ours
			failures = 0
		default:
			failures++
			s.outages.begin(ctx, st, "renew", err)
		}
	}
}

// What giveBack gives back.
func idle(it *item) bool {
	return it.state == waiting && (it.queue == nil || it.queue.state != queueBusy)
}
func everything(it *item) bool { return it.state == waiting }

// giveBack lets others have at once what is claimed and not being handled. No attempt is charged.
func (s *session) giveBack(ctx context.Context, which func(*item) bool) {
	ctx, cancel := context.WithTimeout(ctx, flushGrace)
	defer cancel()
	for _, st := range s.streams {
		items := s.claimed(st, which)
		if len(items) == 0 {
			continue
		}
		err := s.own(ctx, st, items, s.claimAfter, -1)
		if err != nil {
			s.log.WarnContext(ctx, "messages not given back",
				"stream", st.name, "messages", len(items), "after", s.claimAfter, "error", err)
		}
		s.mu.Lock()
		var gone []string
		for _, it := range items {
			if st.items[it.position] == it {
				if it.gone {
					gone = append(gone, it.position)
				}
				s.forget(it)
			}
		}
		s.mu.Unlock()
		for _, position := range gone {
			s.trimmed(ctx, st, position)
		}
	}
}

// leave takes the consumer out of its groups, where nothing is pending for it.
func (s *session) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushGrace)
	defer cancel()
	for _, st := range s.streams {
		if !st.ready {
			continue
		}
		if _, err := leaveScript.run(ctx, s.client, []string{st.name}, s.group, s.name); err != nil && !isNoGroup(err) {
			s.log.WarnContext(ctx, "consumer could not leave its group",
				"stream", st.name, "error", err)
		}
	}
}

// tidy removes consumers from the group that have nothing pending and have not been heard of for
// long: processes that have died.
func (s *session) tidy(ctx context.Context, st *stream) error {
	consumers, err := s.client.XInfoConsumers(ctx, st.name, s.group).Result()
	if err != nil {
		return err
	}
	for _, consumer := range consumers {
		if consumer.Name != s.name && consumer.Pending == 0 && consumer.Idle > tidyAfter*s.claimAfter {
			if _, err := leaveScript.run(ctx, s.client, []string{st.name}, s.group, consumer.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidyAfter is how many times longer a consumer has to be silent than its entries, to be removed.
// One that lives comes back by itself.
const tidyAfter = 20
