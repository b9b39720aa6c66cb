package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// An Entry is a message that a process has claimed: it has neither been confirmed nor given back.
// Its exported fields are the transport's to set before it is claimed, unless they say otherwise.
type Entry struct {
	// ID is what the broker knows the message by: of two entries with one id, the second is a copy.
	ID string
	// Bytes is how much room it takes.
	Bytes int
	// Message is not nil when the entry is claimed; see [Read]. Its ordering key, empty for none, says
	// what it waits for. See [Session.Unload] for later.
	Message *inbox.Message
	// Scope is what its ordering key is a key of: the same key of two scopes is two keys.
	Scope string
	// Low messages are handled only while no other one could be.
	Low bool
	// Broken is the error of [Read].
	Broken error
	// Gap is how long its place in its key is kept where it is given back and others of the key may come
	// before it comes again. Zero: not at all.
	Gap time.Duration
	// Ordered says that the broker delivers all that is behind it in its key after it again: after Gap it
	// is better given back than handled.
	Ordered bool
	// AtLeast is how many attempts have failed for certain, in other processes, too; what this one
	// remembers may be more.
	AtLeast int
	// Expire is when it has to be given back at the latest; zero for never.
	Expire time.Time
	// History is what is known of it; a session changes it.
	History

	queue    *queue
	claimed  time.Time
	first    Delivery
	copies   []Delivery // of the message, the first one too; all of them are confirmed or given back together
	admitted bool       // it takes room
	name     string     // what makes its key, with all that it holds, where it cannot be read
	unread   bool       // it is read for the first time when it is its turn
	held     bool       // it is abandoned, and there is no place to put it
	told     time.Time  // when that was said last
	counted  bool       // among those that cannot be read
	loads    int        // that have failed; see [Settings.Load]
	due      time.Time  // before then it is not tried again
	timer    *time.Timer
	cancel   context.CancelCauseFunc // of its handler
	leaving  bool                    // it is given up as soon as its handler has ended
	over     bool                    // it was confirmed or given back
	until    time.Time               // it was given back, and is but the place that is kept for it
	settled  chan struct{}           // closed when it is over, where that is awaited
}

// First is the first delivery of the message that this process has got.
func (e *Entry) First() Delivery { return e.first }

// Due is when it may be tried next, for [Delivery.Nack]; zero where it was not to wait.
func (e *Entry) Due() time.Time { return e.due }

// A queue holds the messages of one key, of which one at a time is handled. A message without a key
// has a queue of its own. Those whose key is known only when they are read have one together until then.
type queue struct {
	key     string
	unread  bool          // they are to be read
	gap     time.Duration // how long places are kept
	ordered bool          // by the broker
	state   queueState
	// entries are in the order in which they came first: of what was given back the place is kept,
	// and what is behind it waits until it has come again.
	entries []*Entry
}

type queueState int

const (
	idle    queueState = iota // the head has to come again
	ready                     // the head waits for a worker
	running                   // the head is being handled
	paused                    // the head waits for its next attempt
)

// queues decide what is handled when. They know no goroutines and no clock, and are not safe for
// concurrent use.
type queues struct {
	workers     int
	maxMessages int
	maxBytes    int
	before      func(a, b *Entry) bool // see [Settings]

	byKey    map[string]*queue
	byID     map[string]*Entry
	ready    []*queue
	low      []*queue // those that have low messages alone
	running  int
	stuck    int  // whose handler is overdue, among them
	still    bool // nothing is handed out
	bytes    int
	stopping bool
}

func newQueues(workers, maxMessages, maxBytes int) *queues {
	return &queues{workers: workers, maxMessages: maxMessages, maxBytes: maxBytes, byKey: map[string]*queue{}, byID: map[string]*Entry{}}
}

// find returns the entry of a message that is claimed.
func (l *queues) find(id string) *Entry { return l.byID[id] }

// add takes a message that is not claimed yet; key is empty for none.
func (l *queues) add(e *Entry, key string) {
	at := queueOf(e, key)
	if there := l.byKey[at.key]; there != nil {
		at = there
	}
	l.byKey[at.key] = at
	e.queue = at
	l.byID[e.ID] = e
	l.bytes += e.Bytes
	kept := -1
	if at.gap > 0 {
		kept = slices.IndexFunc(at.entries, func(other *Entry) bool { return !other.until.IsZero() && other.ID == e.ID })
	}
	if kept >= 0 {
		at.entries[kept] = e
	} else {
		kept = l.position(at, e)
		at.entries = slices.Insert(at.entries, kept, e)
	}
	switch {
	case at.state == idle:
		l.resume(at)
	case at.state == paused && kept == 0: // what was paused waits behind it
		l.makeReady(at)
	case at.state == ready && !e.Low: // it need not wait like a low one any more
		if i := slices.Index(l.low, at); i >= 0 {
			l.low = slices.Delete(l.low, i, i+1)
			l.makeReady(at)
		}
	}
}

// queueOf is the queue where a message belongs, empty.
func queueOf(e *Entry, key string) *queue {
	switch {
	case key != "":
		return &queue{key: "key " + e.Scope + "\x00" + key, gap: e.Gap, ordered: e.Ordered}
	case e.unread:
		return &queue{key: "unread " + e.Scope, unread: true}
	default:
		return &queue{key: "id " + e.ID}
	}
}

// position is where a message belongs in its queue: behind all others, but before those that it precedes
// and that are not being handled.
func (l *queues) position(at *queue, e *Entry) int {
	found, first := len(at.entries), 0
	if at.state == running {
		first = 1
	}
	for i := found - 1; l.before != nil && i >= first && !l.before(at.entries[i], e); i-- {
		if l.before(e, at.entries[i]) {
			found = i
		}
	}
	return found
}

func (l *queues) makeReady(at *queue) {
	at.state = ready
	if slices.ContainsFunc(at.entries, func(e *Entry) bool { return !e.Low }) {
		l.ready = append(l.ready, at)
	} else {
		l.low = append(l.low, at)
	}
}

func (l *queues) hasReady() bool { return len(l.ready)+len(l.low) > 0 }

// hasWorker reports whether another handler may run. Those that go on although their contexts have
// ended are replaced, as many of them as there are workers.
func (l *queues) hasWorker() bool { return l.running-min(l.stuck, l.workers) < l.workers }

// next returns a message to handle, nil for none. It is being handled until done, pause or release.
func (l *queues) next() *Entry {
	if l.still || !l.hasWorker() || !l.hasReady() {
		return nil
	}
	from := &l.ready
	if len(*from) == 0 {
		from = &l.low
	}
	at := (*from)[0]
	*from = (*from)[1:]
	at.state = running
	l.running++
	return at.entries[0]
}

// done takes a message that was handled from its queue. It returns what has to be given back.
func (l *queues) done(e *Entry) (back []*Entry) {
	at := e.queue
	if at.state != running || len(at.entries) == 0 || at.entries[0] != e {
		return nil // left behind
	}
	l.running--
	if !e.over { // else it is forgotten already
		l.forget(e)
	}
	at.entries[0] = nil // else it would stay in memory for as long as the queue
	at.entries = at.entries[1:]
	at.state = idle
	if l.stopping {
		return l.empty(at)
	}
	l.resume(at)
	return nil
}

// resume goes on with a queue that is idle.
func (l *queues) resume(at *queue) {
	switch {
	case len(at.entries) == 0:
		delete(l.byKey, at.key)
	case at.entries[0].until.IsZero():
		l.makeReady(at)
	}
}

// part moves a message that is being handled to the queue of a key, its own where that is empty, and the
// queue where it was goes on without it. It reports whether it is handled on, as nothing is before it.
func (l *queues) part(e *Entry, key string) bool {
	e.unread = false
	at, to := e.queue, queueOf(e, key)
	if l.stopping || e.over || e.leaving || at.key == to.key {
		return true
	}
	at.entries[0] = nil
	at.entries = at.entries[1:]
	at.state = idle
	l.resume(at)
	if l.byKey[to.key] != nil {
		l.running--
		l.forget(e)
		l.add(e, key)
		return false
	}
	to.state, to.entries, e.queue = running, []*Entry{e}, to
	l.byKey[to.key] = to
	return true
}

// pause lets a message that was handled wait for its next attempt, and its queue with it, unless others
// that precede it have come meanwhile.
func (l *queues) pause(e *Entry) {
	l.running--
	at, to := e.queue, 0
	at.state = paused
	for i := 1; l.before != nil && i < len(at.entries) && !l.before(e, at.entries[i]); i++ {
		if l.before(at.entries[i], e) {
			to = i
		}
	}
	if to > 0 {
		copy(at.entries, at.entries[1:to+1])
		at.entries[to] = e
		l.makeReady(at)
	}
}

// wake ends the pause of a message; nothing happens where it has none any more.
func (l *queues) wake(e *Entry) {
	if at := e.queue; at.state == paused && len(at.entries) > 0 && at.entries[0] == e {
		l.makeReady(at)
	}
}

// release removes the head of a queue, which was handled, and all messages behind it from the queue.
// The caller returns them to the broker. Of a message that is given up only that one goes: what is behind
// it has come since.
func (l *queues) release(e *Entry, now time.Time) (back []*Entry) {
	at := e.queue
	switch {
	case e.over:
		return l.done(e)
	case l.stopping:
		l.running--
		at.state = idle
		return l.empty(at)
	}
	l.running--
	at.state = idle
	back = l.remove(at, now, func(other *Entry) bool { return !e.leaving || other == e })
	l.resume(at)
	return back
}

// remove takes the messages that match from a queue, and keeps their places where that is due. They are
// over.
func (l *queues) remove(at *queue, now time.Time, match func(*Entry) bool) (back []*Entry) {
	left := at.entries[:0:0]
	for _, e := range at.entries {
		switch {
		case e.over || !match(e):
			left = append(left, e)
			continue
		case at.gap > 0:
			left = append(left, at.place(e, now))
		}
		l.end(e)
		back = append(back, e)
	}
	at.entries = left
	return back
}

// place is what is kept for a message that was given back.
func (at *queue) place(e *Entry, now time.Time) *Entry {
	return &Entry{ID: e.ID, over: true, until: now.Add(at.gap)}
}

// withdraw removes the messages that match, but for those that are being handled, which it marks and returns as
// well. Places that are kept are kept for longer: the broker has been out of reach.
func (l *queues) withdraw(now time.Time, match func(*Entry) bool) (back, under []*Entry) {
	for _, at := range l.byKey {
		head := at.entries[0]
		back = append(back, l.remove(at, now, func(e *Entry) bool {
			switch {
			case !match(e):
				return false
			case e == head && at.state == running:
				e.leaving = true
				under = append(under, e)
				return false
			}
			return true
		})...)
		for _, e := range at.entries {
			if !e.until.IsZero() {
				e.until = now.Add(at.gap)
			}
		}
		l.settle(at, head)
	}
	return back, under
}

// settle looks at a queue whose head may have been removed.
func (l *queues) settle(at *queue, head *Entry) {
	if at.state == running || len(at.entries) > 0 && at.entries[0] == head {
		return
	}
	if at.state == ready {
		same := func(other *queue) bool { return other == at }
		l.ready, l.low = slices.DeleteFunc(l.ready, same), slices.DeleteFunc(l.low, same)
	}
	at.state = idle
	l.resume(at)
}

// lose gives up a message that is being handled; its queue waits until its handler has ended.
func (l *queues) lose(e *Entry, now time.Time) {
	l.end(e)
	if at := e.queue; at.gap > 0 {
		at.entries = slices.Insert(at.entries, 1, at.place(e, now))
	}
}

// stop hands nothing out any more. It returns what has to be given back at once; what waits behind
// a message that is being handled follows when that is done, so that no other process handles it meanwhile.
func (l *queues) stop() (back []*Entry) {
	l.stopping = true
	l.ready, l.low = nil, nil
	for _, at := range l.byKey {
		if at.state != running {
			at.state = idle
			back = append(back, l.empty(at)...)
		}
	}
	return back
}

// leave forgets messages that are still being handled, and returns all that is left.
func (l *queues) leave() (back []*Entry) {
	for _, at := range l.byKey {
		back = append(back, l.empty(at)...)
	}
	clear(l.byKey)
	l.running = 0
	return back
}

// empty returns all that is in a queue.
func (l *queues) empty(at *queue) (back []*Entry) {
	at.gap = 0
	back = l.remove(at, time.Time{}, func(*Entry) bool { return true })
	at.entries = nil
	if at.state != running {
		delete(l.byKey, at.key)
	}
	return back
}

// end forgets a message that is to be given back.
func (l *queues) end(e *Entry) {
	l.forget(e)
	e.over = true
}

func (l *queues) forget(e *Entry) {
	delete(l.byID, e.ID)
	l.bytes -= e.Bytes
}
