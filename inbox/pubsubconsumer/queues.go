package pubsubconsumer

import (
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/gorm-fanout/fanout/inbox"
)

// An entry is a message that this process has claimed: it has neither been confirmed nor given
// back.
type entry struct {
	id     string // Pub/Sub's, the same for all deliveries of the message
	bytes  int
	queue  *queue
	copies []*pubsub.Message // its deliveries; all of them are confirmed or given back together

	message *inbox.Message
	broken  error // it cannot be read
	history
	held   bool      // it is abandoned, and there is no place to put it
	told   time.Time // when that was said last
	due    time.Time // before then it is not tried again
	expire time.Time // until then its lease is extended
	timer  *time.Timer
	over   bool // it was confirmed or given back
}

// A queue holds the messages of one key, of which one at a time is handled. A message without a key
// has a queue of its own.
type queue struct {
	key     string
	ordered bool // by Pub/Sub
	state   queueState
	entries []*entry

	// gap is the message that was given back and has to come before anything else can join the
	// queue: what arrives instead was sent before Pub/Sub knew. It waits among the late, and is
	// given back when the gap closes: Pub/Sub sends it again after the gap.
	gap    string
	closes time.Time
	late   []*entry
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
	byID     map[string]*entry
	ready    []*queue
	running  int
	stuck    int // of these, those whose handler overdue
	bytes    int
	stopping bool
}

func newQueues(workers, maxMessages, maxBytes int, patience time.Duration) *queues {
	return &queues{
		workers: workers, maxMessages: maxMessages, maxBytes: maxBytes, patience: patience,
		byKey: map[string]*queue{}, byID: map[string]*entry{},
	}
}

// find returns the entry of a message that is claimed.
func (l *queues) find(id string) *entry { return l.byID[id] }

// add takes a message that is not claimed yet; key is empty for none. It returns what has to be
// given back.
func (l *queues) add(e *entry, key string, ordered bool) (back []*entry) {
	name := "key " + key
	if key == "" {
		name, ordered = "id "+e.id, false
	}
	at := l.byKey[name]
	if at == nil {
		at = &queue{key: name, ordered: ordered}
		l.byKey[name] = at
	}
	e.queue = at
	l.byID[e.id] = e
	l.bytes += e.bytes
	switch at.gap {
	case "":
	case e.id:
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
func (l *queues) next() *entry {
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
func (l *queues) done(e *entry) (back []*entry) {
	if l.byID[e.id] != e {
		return nil // left behind
	}
	at := e.queue
	l.running--
	l.forget(e)
	at.entries = at.entries[1:]
	at.state = idle
	switch {
	case l.stopping:
		return l.empty(at)
	case len(at.entries) > 0:
		l.makeReady(at)
	default:
		l.drop(at)
	}
	return nil
}

// pause lets a message that was under way wait for its next attempt, and its queue with it.
func (l *queues) pause(e *entry) {
	l.running--
	e.queue.state = paused
}

// wake ends the pause of a message; nothing happens where it has none any more.
func (l *queues) wake(e *entry) {
	if at := e.queue; at.state == paused && len(at.entries) > 0 && at.entries[0] == e {
		l.makeReady(at)
	}
}

// release removes the head of a queue and all messages behind it from the queue. The caller returns
// them to Pub/Sub.
func (l *queues) release(e *entry, now time.Time) (back []*entry) {
	at := e.queue
	if l.byID[e.id] != e {
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
func (l *queues) cut(at *queue, n int, now time.Time) (back []*entry) {
	back = append(back, at.entries[n:]...)
	at.entries = at.entries[:n:n]
	l.forgetAll(back)
	if at.ordered {
		at.gap, at.closes = back[0].id, now.Add(l.patience)
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

// stop hands nothing out any more. It returns what has to be given back at once; what waits behind
// a message that is under way follows when that is done, so that nobody else handles it meanwhile.
func (l *queues) stop() (back []*entry) {
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
func (l *queues) leave() (back []*entry) {
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
func (l *queues) tick(now time.Time, waiting bool) (back []*entry) {
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
	if len(back) > 0 || !full || !l.hasWorker() || len(l.ready) > 0 {
		return back
	}
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
func (l *queues) close(at *queue) (back []*entry) {
	back, at.late, at.gap = at.late, nil, ""
	l.forgetAll(back)
	return back
}

// empty returns all that is in a queue.
func (l *queues) empty(at *queue) (back []*entry) {
	back = slices.Concat(at.entries, at.late)
	at.entries, at.late, at.gap = nil, nil, ""
	l.forgetAll(back)
	l.drop(at)
	return back
}

func (l *queues) forget(e *entry) {
	delete(l.byID, e.id)
	l.bytes -= e.bytes
}

func (l *queues) forgetAll(entries []*entry) {
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
