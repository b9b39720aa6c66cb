package redisconsumer

import (
	"context"
	"slices"
	"sync"
	"time"
)

// claims are the entries that a session has claimed, and the handlers that it has under way. The
// lock guards them, the entries of each stream, and everything that changes of an item.
type claims struct {
	c *Consumer

	mu      sync.Mutex
	queues  queues
	busy    int           // handlers under way
	stuck   int           // of these, those that go on although their contexts have ended
	paused  bool          // no handler is started
	changed chan struct{} // closed at the next change, where a goroutine waits for one

	wake chan struct{} // there may be something to handle

	work   context.Context //nolint:containedctx // of all handlers
	cancel context.CancelCauseFunc
}

// admit claims items. What is claimed already is delivered again after its group was deleted: the
// one that is there goes on, under the new delivery.
func (cs *claims) admit(st *stream, items []*item) {
	cs.mu.Lock()
	for _, it := range items {
		if there := st.items[it.position]; there != nil && there.state != lost {
			there.count, there.gone = it.count, false
			continue
		}
		st.items[it.position] = it
		it.hold()
		cs.queues.add(it)
	}
	st.expect(items)
	st.count()
	cs.mu.Unlock()
	nudge(cs.wake)
}

// room is how many more entries may be claimed.
func (cs *claims) room(st *stream) int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.roomOf(st)
}

// roomOf is how many more entries may be claimed. The lock is held.
func (cs *claims) roomOf(st *stream) int {
	most := cs.c.prefetch
	if st.primary != nil { // no more than are handled soon: who has claimed them may have better things to do
		most = min(most, 2*cs.c.workers)
	}
	room := max(most-(len(st.items)-int(st.unloaded.Load())), 0)
	left := int64(cs.c.prefetchBytes) - st.held.Load().Load()
	if room == 0 || left <= 0 {
		return 0
	}
	return min(room, int(max(left/max(st.largest, 1), 1)))
}

// claimed are the items of a stream that are chosen. The choice is made with the lock held.
func (cs *claims) claimed(st *stream, chosen func(*item) bool) (items []*item) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, it := range st.items {
		if chosen(it) {
			items = append(items, it)
		}
	}
	return items
}

// present are those of the items that the stream still has, and the arguments with their tokens.
func (cs *claims) present(items []*item, args ...any) (there []*item, all []any) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, it := range items {
		if it.stream.items[it.position] == it && !it.gone {
			there = append(there, it)
			args = append(args, it.position, it.count)
		}
	}
	return there, args
}

func (cs *claims) unacknowledged(st *stream) []*item {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return slices.Clone(st.acks[:min(len(st.acks), atOnce)])
}

// finished hands an item over to be acknowledged; its key goes on. The lock is held.
func (cs *claims) finished(it *item) {
	it.state = handled
	cs.queues.finish(it)
	it.message = nil
	it.release()
	it.stream.acks = append(it.stream.acks, it)
	nudge(it.stream.toAck)
}

// forget lets go of an item. The lock is held.
func (cs *claims) forget(it *item) {
	cs.queues.finish(it)
	if it.stream.items[it.position] == it {
		delete(it.stream.items, it.position)
	}
	// Also where the entry has come again, and another item stands in its place.
	it.release()
	if it.unloaded {
		it.unloaded = false
		it.stream.unloaded.Add(-1)
	}
	it.stream.count()
	nudge(it.stream.room)
	cs.notify()
}

// surrender is what becomes of an item that another consumer has taken over: its handler is told,
// and nothing is done to the entry.
func (cs *claims) surrender(it *item) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if it.stream.items[it.position] != it || it.state == handled || it.state == lost {
		return
	}
	it.stream.unsure.Store(true)
	it.stream.counters.lost.Add(1)
	cs.c.log.WarnContext(cs.work, "message taken over by another consumer", "stream", it.stream.name, "entry", it.position,
		"handler_under_way", it.state == running)
	if it.state == running {
		it.state = lost
		it.cancel(errLost) // its goroutine forgets it
		return
	}
	it.state = lost
	cs.forget(it)
}

// hasWorker reports whether another handler may be started. Those that go on although their
// contexts have ended are replaced, as many of them as there are workers. The lock is held.
func (cs *claims) hasWorker() bool { return cs.busy-min(cs.stuck, cs.c.workers) < cs.c.workers }

// underWay counts handlers, for the session and beyond its end. The lock is held.
func (cs *claims) underWay(change int) {
	cs.busy += change
	cs.c.handlers.Add(int64(change))
	cs.notify()
}

func (cs *claims) handlerEnded() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.underWay(-1)
}

// overdue counts handlers that go on although their contexts have ended.
func (cs *claims) overdue(goesOn bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !goesOn {
		cs.stuck--
		return
	}
	if cs.stuck++; cs.stuck == 2*cs.c.workers {
		cs.c.log.ErrorContext(cs.work, "all workers blocked by overdue handlers",
			"handlers", cs.stuck)
	}
	nudge(cs.wake)
}

// await waits until holds, which is called with the lock held; at most for so long.
func (cs *claims) await(ctx context.Context, patience time.Duration, holds func() bool) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		cs.mu.Lock()
		if holds() {
			cs.mu.Unlock()
			return true
		}
		if cs.changed == nil {
			cs.changed = make(chan struct{})
		}
		changed := cs.changed
		cs.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// notify wakes those that await a change. The lock is held.
func (cs *claims) notify() {
	if cs.changed != nil {
		close(cs.changed)
		cs.changed = nil
	}
}
