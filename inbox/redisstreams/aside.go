package redisstreams

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Messages that wait, behind a failing one of their key or for an attempt of their own, would fill the hands and so starve every other key of
// the stream. Where nothing new fits in while workers are idle, some are set aside: they stay pending for this consumer, are renewed, and keep
// their place in the line of their key, but their payload is dropped. It is fetched again when it is their turn.
const (
	// asidePerPrefetch bounds what is set aside of a stream, in multiples of the prefetch.
	asidePerPrefetch = 64
	// asidePatience is how long some workers are idle before something is set aside: what the others do may make room by itself.
	asidePatience = 50 * time.Millisecond
)

// awaitRoom waits until there is room for more entries, and makes some where nothing else does.
func (s *session) awaitRoom(ctx context.Context, l *lane) {
	patience := asidePatience
	if s.handlers.Load() == 0 {
		patience = time.Millisecond
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-l.room:
	case <-timer.C:
		s.setAside(ctx, l)
	}
}

// setAside makes room for a quarter of the prefetch where workers are idle.
func (s *session) setAside(ctx context.Context, l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.roomOf(l) > 0 || s.paused || !s.hasWorker() || s.queue.hasReady() {
		return
	}
	quota := min((s.prefetch+3)/4, asidePerPrefetch*s.prefetch-l.aside)
	if quota <= 0 {
		if !l.full {
			l.full = true
			s.log.WarnContext(ctx, "messages behind failing ones take up all that may be held: the stream is not read on until some of them are done",
				"stream", l.stream, "set_aside", l.aside)
		}
		return
	}
	l.full = false
	for _, it := range l.aboutToWait() {
		if quota == 0 {
			break
		}
		quota--
		it.message, it.aside = nil, true
		l.aside++
	}
	l.count()
}

// aboutToWait are the items that can be set aside, those first that wait for longest: the last ones of the longest lines, and then those at the head
// of a line whose next attempt is furthest away. The session's lock is held.
func (l *lane) aboutToWait() []*item {
	followers := map[*line][]*item{}
	var heads []*item
	for _, it := range l.held {
		switch {
		case !it.canBeSetAside():
		case it.line.items[0] != it:
			followers[it.line] = append(followers[it.line], it)
		case it.line.state == lineLater:
			heads = append(heads, it)
		}
	}
	lines := make([][]*item, 0, len(followers))
	for _, items := range followers {
		slices.SortFunc(items, func(a, b *item) int { return b.id.compare(a.id) })
		lines = append(lines, items)
	}
	slices.SortFunc(lines, func(a, b []*item) int { return cmp.Compare(len(b), len(a)) })
	slices.SortFunc(heads, func(a, b *item) int { return b.due.Compare(a.due) })
	return slices.Concat(append(lines, heads)...)
}

func (it *item) canBeSetAside() bool {
	return it.state == waiting && it.line != nil && !it.aside && !it.lent && !it.gone && it.condemned == nil
}

// fetch gets the payload of an item that was set aside, whose turn it is. It reports whether it can be handled.
func (s *session) fetch(ctx context.Context, it *item) bool {
	l := it.lane
	begun := time.Now()
	entries, err := s.client.XRange(ctx, l.stream, it.position, it.position).Result()
	if err == nil && len(entries) == 0 {
		err = s.own(ctx, l, []*item{it}, 0, 0) // which takes it off the pending ones
	}
	if err != nil {
		s.outages.begin(ctx, l, "fetch again from", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		if it.state == lost {
			s.forget(it)
			return false
		}
		it.fetches++
		it.state = waiting
		s.queue.again(it, time.Now().Add(pauseAfter(it.fetches)))
		return false
	}
	s.outages.end(ctx, l, "fetch again from", begun)
	if len(entries) == 0 {
		s.mu.Lock()
		ours := it.state != lost
		s.forget(it)
		s.mu.Unlock()
		if ours {
			s.trimmed(ctx, l, it.position)
		}
		return false
	}
	s.mu.Lock()
	count := it.count
	s.mu.Unlock()
	fresh, err := s.newItem(l, it.position, count, stringFields(entries[0].Values))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || it.state == lost { // taken over meanwhile; a position that was parsed before has no other error
		s.forget(it)
		return false
	}
	it.message, it.condemned, it.fetches = fresh.message, fresh.condemned, 0
	it.aside = false
	l.aside--
	l.count()
	return true
}

// roomOf is how many more entries may be in hand. The lock is held.
func (s *session) roomOf(l *lane) int {
	most := s.prefetch
	if l.primary != nil { // no more than are handled soon: who has them in hand may have better things to do
		most = min(most, 2*s.workers)
	}
	return max(most-(len(l.held)-l.aside), 0)
}

// count publishes the figures for those who only look. The session's lock is held.
func (l *lane) count() {
	l.inHand.Store(int64(len(l.held) - l.aside))
	l.setAside.Store(int64(l.aside))
}

// stringFields are the fields of an entry as the client has them.
func stringFields(values map[string]any) map[string]string {
	fields := make(map[string]string, len(values))
	for name, value := range values {
		fields[name], _ = value.(string)
	}
	return fields
}
