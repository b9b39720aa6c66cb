package redisconsumer

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Messages that wait, behind a failing one of their key or for an attempt of their own, would fill
// the prefetch and so starve every other key of the stream. Where nothing new fits in while workers
// are idle, some are set aside: they stay pending for this consumer, are renewed, and keep their
// place in the queue of their key, but their payload is dropped. It is fetched again when it is
// their turn.
const (
	// asidePerPrefetch bounds what is set aside of a stream, in multiples of the prefetch.
	asidePerPrefetch = 64
	// asidePatience is how long some workers are idle before something is set aside: what the
	// others do may make room by itself.
	asidePatience = 50 * time.Millisecond
)

// awaitRoom waits until there is room for more entries, and makes some where nothing else does.
func (t *taker) awaitRoom(ctx context.Context, st *stream) {
	patience := asidePatience
	if t.c.handlers.Load() == 0 {
		patience = time.Millisecond
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-st.room:
	case <-timer.C:
		t.setAside(ctx, st)
	}
}

// setAside makes room for a quarter of the prefetch where workers are idle.
func (t *taker) setAside(ctx context.Context, st *stream) {
	t.claims.mu.Lock()
	defer t.claims.mu.Unlock()
	if t.claims.roomOf(st) > 0 || t.claims.paused || !t.claims.hasWorker() || t.claims.queues.hasReady() {
		return
	}
	quota := min((t.c.prefetch+3)/4, asidePerPrefetch*t.c.prefetch-st.aside)
	if quota <= 0 {
		if !st.full {
			st.full = true
			t.c.log.WarnContext(ctx, "stream not read: too many messages set aside",
				"stream", st.name, "set_aside", st.aside)
		}
		return
	}
	st.full = false
	for _, it := range st.aboutToWait() {
		if quota == 0 {
			break
		}
		quota--
		it.message, it.aside = nil, true
		st.aside++
	}
	st.count()
}

// aboutToWait are the items that can be set aside, those first that wait for longest: the last ones
// of the longest queues, and then those at the head of a queue whose next attempt is furthest away.
// The session's lock is held.
func (st *stream) aboutToWait() []*item {
	followers := map[*queue][]*item{}
	var heads []*item
	for _, it := range st.items {
		switch {
		case !it.canBeSetAside():
		case it.queue.items[0] != it:
			followers[it.queue] = append(followers[it.queue], it)
		case it.queue.state == queueLater:
			heads = append(heads, it)
		}
	}
	behind := make([][]*item, 0, len(followers))
	for _, items := range followers {
		slices.SortFunc(items, func(a, b *item) int { return b.id.compare(a.id) })
		behind = append(behind, items)
	}
	slices.SortFunc(behind, func(a, b []*item) int { return cmp.Compare(len(b), len(a)) })
	slices.SortFunc(heads, func(a, b *item) int { return b.due.Compare(a.due) })
	return slices.Concat(append(behind, heads)...)
}

func (it *item) canBeSetAside() bool {
	return it.state == waiting && it.queue != nil && !it.aside && !it.lent && !it.gone && it.abandoned == nil
}

// fetch gets the payload of an item that was set aside, whose turn it is. It reports whether it can
// be handled.
func (s *session) fetch(ctx context.Context, it *item) bool {
	st := it.stream
	begun := time.Now()
	entries, err := s.c.client.XRange(ctx, st.name, it.position, it.position).Result()
	if err == nil && len(entries) == 0 {
		err = s.keeper.own(ctx, st, []*item{it}, 0, 0) // which takes it off the pending ones
	}
	if err != nil {
		s.c.outages.begin(ctx, st, "fetch again from", err)
		s.claims.mu.Lock()
		defer s.claims.mu.Unlock()
		if it.state == lost {
			s.claims.forget(it)
			return false
		}
		it.fetches++
		it.state = waiting
		s.claims.queues.again(it, time.Now().Add(pauseAfter(it.fetches)))
		return false
	}
	s.c.outages.end(ctx, st, "fetch again from", begun)
	if len(entries) == 0 {
		s.claims.mu.Lock()
		ours := it.state != lost
		s.claims.forget(it)
		s.claims.mu.Unlock()
		if ours {
			s.c.trimmed(ctx, st, it.position)
		}
		return false
	}
	s.claims.mu.Lock()
	count := it.count
	s.claims.mu.Unlock()
	fresh, err := s.c.newItem(st, it.position, count, stringFields(entries[0].Values))
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if err != nil || it.state == lost { // taken over meanwhile; a position that was parsed before has no other error
		s.claims.forget(it)
		return false
	}
	it.message, it.abandoned, it.fetches = fresh.message, fresh.abandoned, 0
	it.aside = false
	st.aside--
	st.count()
	return true
}

// count publishes the figures for those who only look. The session's lock is held.
func (st *stream) count() {
	st.claimed.Store(int64(len(st.items) - st.aside))
	st.setAside.Store(int64(st.aside))
}

// stringFields are the fields of an entry as the client has them.
func stringFields(values map[string]any) map[string]string {
	fields := make(map[string]string, len(values))
	for name, value := range values {
		fields[name], _ = value.(string)
	}
	return fields
}
