package redisconsumer

import (
	"context"
	"slices"
	"time"
)

// acknowledge acknowledges what was handled. While one call is on its way, others gather for the
// next. When ctx ends it acknowledges the rest, for a bounded time.
func (s *session) acknowledge(ctx context.Context, st *stream) {
	for {
		select {
		case <-st.toAck:
			s.flush(ctx, st, ctx.Done())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushGrace)
			defer cancel()
			s.flush(last, st, last.Done())
			if n := len(s.unacknowledged(st)); n > 0 {
				s.log.WarnContext(last, "handled messages not acknowledged",
					"stream", st.name, "messages", n)
			}
			return
		}
	}
}

func (s *session) unacknowledged(st *stream) []*item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(st.acks[:min(len(st.acks), atOnce)])
}

// flush acknowledges until there is nothing left, or end.
func (s *session) flush(ctx context.Context, st *stream, end <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	for failures := 0; ; {
		items := s.unacknowledged(st)
		if len(items) == 0 {
			return
		}
		begun := time.Now()
		err := s.acknowledgeSome(ctx, st, items)
		if err == nil {
			failures = 0
			s.outages.end(ctx, st, "acknowledge", begun)
			continue
		}
		failures++
		if !isNoGroup(err) {
			s.outages.begin(ctx, st, "acknowledge", err)
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
func (s *session) acknowledgeSome(ctx context.Context, st *stream, items []*item) error {
	args := []any{s.group, s.name}
	var there []*item
	s.mu.Lock()
	for _, it := range items {
		if !it.gone {
			there = append(there, it)
			args = append(args, it.position, it.count)
		}
	}
	s.mu.Unlock()
	var answers []int64
	if len(there) > 0 {
		var err error
		if answers, err = ackScript.numbers(ctx, s.client, len(there), st.name, args...); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, it := range there {
		if answers[i] < 0 {
			st.counters.lost.Add(1)
			s.log.WarnContext(ctx, "message taken over by another consumer after it was handled", "stream", st.name, "entry", it.position)
		}
	}
	st.acks = slices.Delete(st.acks, 0, len(items))
	for _, it := range items {
		s.forget(it)
	}
	return nil
}
