package redisconsumer

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Messages that wait, behind a failing one of their key or for an attempt of their own, would fill
// the prefetch and starve every other key of the stream. While workers are idle and nothing new
// fits in, the consumer unloads some: they stay claimed and in the queue of their key, and their
// leases are renewed, but their payload is dropped and fetched again when it is their turn.
const (
	// unloadedPerPrefetch bounds the unloaded messages of a stream, in multiples of the prefetch.
	unloadedPerPrefetch = 64
	// unloadPatience is how long workers are idle before something is unloaded: those that are busy
	// may make room.
	unloadPatience = 50 * time.Millisecond
)

// awaitRoom waits until there is room for more entries, and makes some where nothing else does.
func (t *taker) awaitRoom(ctx context.Context, st *stream) {
	patience := unloadPatience
	if t.c.handlers.Load() == 0 {
		patience = time.Millisecond
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-st.room:
	case <-timer.C:
		t.unload(ctx, st)
	}
}

// unload makes room for a quarter of the prefetch while workers are idle.
func (t *taker) unload(ctx context.Context, st *stream) {
	t.claims.mu.Lock()
	defer t.claims.mu.Unlock()
	if t.claims.roomOf(st) > 0 || t.claims.paused || !t.claims.hasWorker() || t.claims.queues.hasReady() {
		return
	}
	quota := min((t.c.prefetch+3)/4, unloadedPerPrefetch*t.c.prefetch-int(st.unloaded.Load()))
	if quota <= 0 {
		if !st.full {
			st.full = true
			t.c.log.WarnContext(ctx, "stream not read: too many messages unloaded",
				"stream", st.name, "unloaded", st.unloaded.Load())
		}
		return
	}
	st.full = false
	for _, it := range st.unloadable() {
		if quota == 0 {
			break
		}
		quota--
		it.message, it.unloaded = nil, true
		it.release()
		st.unloaded.Add(1)
	}
	st.count()
}

// unloadable are the items that can be unloaded, those first that wait for longest: the followers
// in the longest queues, and then heads of queues by their next attempt. The session's lock is
// held.
func (st *stream) unloadable() []*item {
	followers := map[*queue][]*item{}
	var heads []*item
	for _, it := range st.items {
		switch {
		case !it.canBeUnloaded():
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

func (it *item) canBeUnloaded() bool {
	return it.state == waiting && it.queue != nil && !it.unloaded && !it.lent && !it.gone && it.abandoned == nil
}

// reload fetches the payload of an unloaded item. It reports whether the item can be handled.
func (s *activity) reload(ctx context.Context, it *item) bool {
	st := it.stream
	begun := time.Now()
	entries, err := s.c.client.XRange(ctx, st.name, it.position, it.position).Result()
	if err == nil && len(entries) == 0 {
		err = s.keeper.own(ctx, st, []*item{it}, 0, 0) // removes it from the pending entries
	}
	if err != nil {
		s.c.outages.begin(ctx, st, "reload from", err)
		s.claims.mu.Lock()
		defer s.claims.mu.Unlock()
		if it.state == lost {
			s.claims.forget(it)
			return false
		}
		it.reloads++
		it.state = waiting
		s.claims.queues.again(it, time.Now().Add(pauseAfter(it.reloads)))
		return false
	}
	s.c.outages.end(ctx, st, "reload from", begun)
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
	it.message, it.abandoned, it.reloads = fresh.message, fresh.abandoned, 0
	it.unloaded = false
	it.bytes = fresh.bytes
	it.hold()
	st.unloaded.Add(-1)
	st.count()
	return true
}

// count updates the figure for Stats. The session's lock is held.
func (st *stream) count() {
	st.loaded.Store(int64(len(st.items)) - st.unloaded.Load())
}

// hold counts the bytes of an item that is in memory. The session's lock is held.
func (it *item) hold() {
	it.release()
	it.counted, it.held = it.bytes, it.stream.held.Load()
	it.held.Add(it.counted)
}

// release counts them no more. The session's lock is held.
func (it *item) release() {
	if it.held != nil { // of a session that may be over
		it.held.Add(-it.counted)
	}
	it.counted = 0
}

// expect learns from entries that have come how large the next ones may be: as the largest of them, or
// half of what was expected. The session's lock is held.
func (st *stream) expect(items []*item) {
	if len(items) == 0 {
		return
	}
	st.largest /= 2
	for _, it := range items {
		st.largest = max(st.largest, it.bytes)
	}
}

// stringFields are the fields of an entry as the client has them.
func stringFields(values map[string]any) map[string]string {
	fields := make(map[string]string, len(values))
	for name, value := range values {
		fields[name], _ = value.(string)
	}
	return fields
}
