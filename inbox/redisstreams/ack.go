package redisstreams

import (
	"context"
	"slices"
	"time"
)

// acknowledge acknowledges what was handled. While one call is on its way, others gather for the next. When ctx ends it acknowledges the
// rest, for a bounded time.
func (s *session) acknowledge(ctx context.Context, l *lane) {
	for {
		select {
		case <-l.toAck:
			s.flush(ctx, l, ctx.Done())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushGrace)
			defer cancel()
			s.flush(last, l, last.Done())
			if n := len(s.unacknowledged(l)); n > 0 {
				s.log.WarnContext(last, "messages were handled but could not be acknowledged: they are delivered again",
					"stream", l.stream, "messages", n)
			}
			return
		}
	}
}

func (s *session) unacknowledged(l *lane) []*item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(l.acks[:min(len(l.acks), atOnce)])
}

// flush acknowledges until there is nothing left, or end.
func (s *session) flush(ctx context.Context, l *lane, end <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	for failures := 0; ; {
		items := s.unacknowledged(l)
		if len(items) == 0 {
			return
		}
		begun := time.Now()
		err := s.acknowledgeSome(ctx, l, items)
		if err == nil {
			failures = 0
			s.outages.end(ctx, l, "acknowledge", begun)
			continue
		}
		failures++
		if !isNoGroup(err) {
			s.outages.begin(ctx, l, "acknowledge", err)
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
func (s *session) acknowledgeSome(ctx context.Context, l *lane, items []*item) error {
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
		if answers, err = ackScript.numbers(ctx, s.client, len(there), l.stream, args...); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, it := range there {
		if answers[i] < 0 {
			l.counters.lost.Add(1)
			s.log.WarnContext(ctx, "message taken over by another consumer after it was handled", "stream", l.stream, "entry", it.position)
		}
	}
	l.acks = slices.Delete(l.acks, 0, len(items))
	for _, it := range items {
		s.forget(it)
	}
	return nil
}
