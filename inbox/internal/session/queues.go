package session

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
	// Message is never nil; see [Decode]. Its ordering key, empty for none, says what it waits for.
	Message *inbox.Message
	// Broken says why it cannot be read.
	Broken error
	// Ordered says that the broker delivers what is given back of a key again from there, in order.
	Ordered bool
	// Expire is when it has to be given back at the latest; zero for never.
	Expire time.Time
	// History is what is known of it; a session changes it.
	History

	queue    *queue
	copies   []Delivery // of the message; all of them are confirmed or given back together
	admitted bool       // it takes room
	held     bool       // it is abandoned, and there is no place to put it
	told     time.Time  // when that was said last
	due      time.Time  // before then it is not tried again
	timer    *time.Timer
	cancel   context.CancelCauseFunc // of its handler
	leaving  bool                    // it is given up as soon as its handler has ended
	over     bool                    // it was confirmed or given back
	settled  chan struct{}           // closed then
}

// First is the first delivery of the message that this process has got.
func (e *Entry) First() Delivery { return e.copies[0] }

// A queue holds the messages of one key, of which one at a time is handled. A message without a key
// has a queue of its own.
type queue struct {
	key     string
	ordered bool // by the broker
	state   queueState
	entries []*Entry

	// gap is the message that was given back and has to come before anything else can join the
	// queue: what arrives instead was sent before the broker knew. It waits among the late, and is
	// given back when the gap closes: the broker sends it again after the gap.
	gap    string
	closes time.Time
	late   []*Entry
}

type queueState int

const (
	idle    queueState = iota // nothing to do
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
	patience    time.Duration // how long a gap stays open

	byKey    map[string]*queue
	byID     map[string]*Entry
	ready    []*queue
	running  int
	stuck    int // of these, those whose handler overdue
	bytes    int
	stopping bool
}

func newQueues(workers, maxMessages, maxBytes int, patience time.Duration) *queues {
	return &queues{
		workers: workers, maxMessages: maxMessages, maxBytes: maxBytes, patience: patience,
		byKey: map[string]*queue{}, byID: map[string]*Entry{},
	}
}

// find returns the entry of a message that is claimed.
func (l *queues) find(id string) *Entry { return l.byID[id] }

// add takes a message that is not claimed yet; key is empty for none. It returns what has to be
// given back.
func (l *queues) add(e *Entry, key string, ordered bool) (back []*Entry) {
	name := "key " + key
	if key == "" {
		name, ordered = "id "+e.ID, false
	}
	at := l.byKey[name]
	if at == nil {
		at = &queue{key: name, ordered: ordered}
		l.byKey[name] = at
	}
	e.queue = at
	l.byID[e.ID] = e
	l.bytes += e.Bytes
	switch at.gap {
	case "":
	case e.ID:
		back = l.close(at)
	default:
		at.late = append(at.late, e)
		return nil
	}
	at.entries = append(at.entries, e)
	if at.state == idle {
		l.makeReady(at)
	}
	return back
}

func (l *queues) makeReady(at *queue) {
	at.state = ready
	l.ready = append(l.ready, at)
}

// hasWorker reports whether another handler may run. Those that go on although their contexts have
// ended are replaced, as many of them as there are workers.
func (l *queues) hasWorker() bool { return l.running-min(l.stuck, l.workers) < l.workers }

// next returns a message to handle, nil for none. It is under way until done, pause or release.
func (l *queues) next() *Entry {
	if !l.hasWorker() || len(l.ready) == 0 {
		return nil
	}
	at := l.ready[0]
	l.ready = l.ready[1:]
	at.state = running
	l.running++
	return at.entries[0]
}

// done takes a message that was under way from its queue. It returns what has to be given back.
func (l *queues) done(e *Entry) (back []*Entry) {
	at := e.queue
	if at.state != running || len(at.entries) == 0 || at.entries[0] != e {
		return nil // left behind
	}
	l.running--
	if !e.over { // else it is forgotten already
		l.forget(e)
	}
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
	if len(at.entries) > 0 {
		l.makeReady(at)
	} else {
		l.drop(at)
	}
}

// pause lets a message that was under way wait for its next attempt, and its queue with it.
func (l *queues) pause(e *Entry) {
	l.running--
	e.queue.state = paused
}

// wake ends the pause of a message; nothing happens where it has none any more.
func (l *queues) wake(e *Entry) {
	if at := e.queue; at.state == paused && len(at.entries) > 0 && at.entries[0] == e {
		l.makeReady(at)
	}
}

// release removes the head of a queue and all messages behind it from the queue. The caller returns
// them to the broker. Of a message that is given up only that one goes: what is behind it has come
// since.
func (l *queues) release(e *Entry, now time.Time) (back []*Entry) {
	at := e.queue
	if e.over || e.leaving {
		gone := e.over
		if back = l.done(e); !gone {
			back = append(back, e)
		}
		return back
	}
	if l.byID[e.ID] != e {
		return nil // left behind, or released already
	}
	if l.stopping {
		if at.state == running {
			l.running--
		}
		at.state = idle
		return l.empty(at)
	}
	return l.cut(at, 0, now)
}

// cut removes what is in a queue from the n-th place on.
func (l *queues) cut(at *queue, n int, now time.Time) (back []*Entry) {
	back = append(back, at.entries[n:]...)
	at.entries = at.entries[:n:n]
	l.forgetAll(back)
	if at.ordered {
		at.gap, at.closes = back[0].ID, now.Add(l.patience)
	}
	if n == 0 {
		if at.state == running {
			l.running--
		}
		at.state = idle
	}
	l.drop(at)
	return back
}

// withdraw removes the messages that match, but for those under way, which it marks and returns as
// well.
func (l *queues) withdraw(match func(*Entry) bool) (back, under []*Entry) {
	for _, at := range l.byKey {
		was := at.state
		var head *Entry
		if len(at.entries) > 0 {
			head = at.entries[0]
		}
		at.entries = slices.DeleteFunc(at.entries, func(e *Entry) bool {
			switch {
			case e.over || !match(e): // over: lost before, and still under way
				return false
			case e == head && was == running:
				e.leaving = true
				under = append(under, e)
				return false
			}
			back = append(back, e)
			return true
		})
		if was == running || len(at.entries) > 0 && at.entries[0] == head {
			continue
		}
		if was == ready {
			l.ready = slices.DeleteFunc(l.ready, func(other *queue) bool { return other == at })
		}
		at.state = idle
		l.resume(at)
	}
	l.forgetAll(back)
	return back, under
}

// stop hands nothing out any more. It returns what has to be given back at once; what waits behind
// a message that is under way follows when that is done, so that nobody else handles it meanwhile.
func (l *queues) stop() (back []*Entry) {
	l.stopping = true
	l.ready = nil
	for _, at := range l.byKey {
		if at.state != running {
			at.state = idle
			back = append(back, l.empty(at)...)
		}
	}
	return back
}

// leave forgets messages that are still under way, and returns all that is left.
func (l *queues) leave() (back []*Entry) {
	for _, at := range l.byKey {
		back = append(back, l.empty(at)...)
	}
	l.running = 0
	return back
}

// tick returns what has to be given back because time has passed: what is late where the gap has
// stayed open, and, where the hands are full of messages that wait while workers are idle, what is
// late, and a quarter of all, the last ones of the longest queue first. waiting is true where more
// messages have arrived than can be taken.
func (l *queues) tick(now time.Time, giveBack, waiting bool) (back []*Entry) {
	if l.stopping {
		return nil
	}
	for _, at := range l.byKey {
		if at.gap != "" && !now.Before(at.closes) {
			back = append(back, l.close(at)...)
			l.drop(at)
		}
	}
	full := waiting || len(l.byID) >= l.maxMessages || l.bytes >= l.maxBytes
	if !giveBack || len(back) > 0 || !full || !l.hasWorker() || len(l.ready) > 0 {
		return back
	}
	return l.relieve(now)
}

// relieve lets go of what is late and of a quarter of all.
func (l *queues) relieve(now time.Time) (back []*Entry) {
	quota := (len(l.byID) + 3) / 4
	for _, at := range l.byKey { // what is late goes back in any case
		back = append(back, at.late...)
		l.forgetAll(at.late)
		at.late = nil
	}
	for quota > len(back) {
		at := l.longest()
		if at == nil {
			break
		}
		keep := 0
		if len(at.entries) > 1 {
			keep = max(1, len(at.entries)-(quota-len(back)))
		}
		back = append(back, l.cut(at, keep, now)...)
	}
	return back
}

// longest is the queue with the most messages that can be given back; nil for none.
func (l *queues) longest() (found *queue) {
	most := 0
	for _, at := range l.byKey {
		n := len(at.entries)
		if at.state == running {
			n--
		}
		if n > most || n == most && n > 0 && at.key < found.key {
			found, most = at, n
		}
	}
	return found
}

// close ends the gap of a queue and returns what has come late.
func (l *queues) close(at *queue) (back []*Entry) {
	back, at.late, at.gap = at.late, nil, ""
	l.forgetAll(back)
	return back
}

// empty returns all that is in a queue.
func (l *queues) empty(at *queue) (back []*Entry) {
	back = slices.DeleteFunc(slices.Concat(at.entries, at.late), func(e *Entry) bool { return e.over })
	at.entries, at.late, at.gap = nil, nil, ""
	l.forgetAll(back)
	l.drop(at)
	return back
}

func (l *queues) forget(e *Entry) {
	delete(l.byID, e.ID)
	l.bytes -= e.Bytes
}

func (l *queues) forgetAll(entries []*Entry) {
	for _, e := range entries {
		l.forget(e)
	}
}

// drop forgets a queue that has nothing in it.
func (l *queues) drop(at *queue) {
	if len(at.entries) == 0 && at.gap == "" && at.state != running {
		delete(l.byKey, at.key)
	}
}
