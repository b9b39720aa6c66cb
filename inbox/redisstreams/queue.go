package redisstreams

import (
	"container/heap"
	"slices"
	"time"
)

// A queue says what is to be handled next: messages of one key one after the other, in the order of their stream, and keys by turns. It
// knows neither clock nor goroutines. Its zero value is ready.
type queue struct {
	lines map[string]*line // by key; lines of messages without one are in no map
	ready []*line          // whose turn it is, first come first served
	low   []*line          // of backfills alone: whose turn it is when no other's is
	later heapOfLines      // whose first message waits for its time
}

// A line holds the messages of one key.
type line struct {
	key   string
	items []*item
	above int // items that are of no backfill
	state lineState
	index int // within later
}

type lineState int

const (
	lineIdle  lineState = iota
	lineReady           // stands in ready
	lineLater           // stands in later
	lineBusy            // its first message is being handled
)

// add puts a message into its line: behind those that are there, but before younger ones of its own stream that are not being handled.
func (q *queue) add(it *item) {
	l := q.lineOf(it.key)
	it.line = l
	at := len(l.items)
	first := 0
	if l.state == lineBusy {
		first = 1
	}
	for i := len(l.items) - 1; i >= first; i-- {
		if other := l.items[i]; other.lane == it.lane {
			if other.id.before(it.id) {
				break
			}
			at = i
		}
	}
	l.items = append(l.items, nil)
	copy(l.items[at+1:], l.items[at:])
	l.items[at] = it
	if it.lane.primary == nil {
		if l.above++; l.above == 1 && l.state == lineReady { // it need not wait like a backfill any more
			q.leave(l)
			q.enqueue(l)
		}
	}
	if at == 0 {
		q.arrange(l)
	}
}

func (q *queue) lineOf(key string) *line {
	if key == "" {
		return &line{}
	}
	if q.lines == nil {
		q.lines = map[string]*line{}
	}
	l := q.lines[key]
	if l == nil {
		l = &line{key: key}
		q.lines[key] = l
	}
	return l
}

// next takes the message whose turn it is, nil = there is none now. It has to be given to finish or again afterwards.
func (q *queue) next(now time.Time) *item {
	for len(q.later) > 0 && !q.later[0].items[0].due.After(now) {
		l := q.later[0]
		heap.Pop(&q.later)
		l.items[0].due = time.Time{}
		q.enqueue(l)
	}
	from := &q.ready
	if len(q.ready) == 0 {
		from = &q.low
	}
	if len(*from) == 0 {
		return nil
	}
	l := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	l.state = lineBusy
	return l.items[0]
}

// hasReady reports whether a message could be handled at once.
func (q *queue) hasReady() bool { return len(q.ready)+len(q.low) > 0 }

// urgent reports whether one that is of no backfill could.
func (q *queue) urgent() bool { return len(q.ready) > 0 }

// due is when the next message that waits for its time may be handled.
func (q *queue) due() (at time.Time, ok bool) {
	if len(q.later) == 0 {
		return time.Time{}, false
	}
	return q.later[0].items[0].due, true
}

// finish takes a message out, whether it is being handled or waits. Its key goes on.
func (q *queue) finish(it *item) {
	l := it.line
	if l == nil {
		return
	}
	it.line = nil
	for at, other := range l.items {
		if other != it {
			continue
		}
		l.items = append(l.items[:at], l.items[at+1:]...)
		if it.lane.primary == nil {
			l.above--
		}
		if at == 0 {
			q.arrange(l)
		}
		return
	}
}

// again has a message that was being handled wait until its time has come. Its key waits with it.
func (q *queue) again(it *item, due time.Time) {
	it.due = due
	l := it.line
	at := 0 // behind older ones that came while it was being handled
	for i := 1; i < len(l.items); i++ {
		if other := l.items[i]; other.lane == it.lane {
			if it.id.before(other.id) {
				break
			}
			at = i
		}
	}
	copy(l.items, l.items[1:at+1])
	l.items[at] = it
	q.arrange(l)
}

// arrange gives a line whose first message has changed its place.
func (q *queue) arrange(l *line) {
	switch l.state {
	case lineReady:
		if len(l.items) > 0 && l.items[0].due.IsZero() {
			return // it keeps its turn
		}
		q.leave(l)
	case lineLater:
		heap.Remove(&q.later, l.index)
	case lineIdle, lineBusy: // it stands nowhere
	}
	switch {
	case len(l.items) == 0:
		l.state = lineIdle
		if l.key != "" {
			delete(q.lines, l.key)
		}
	case l.items[0].due.IsZero():
		q.enqueue(l)
	default:
		l.state = lineLater
		heap.Push(&q.later, l)
	}
}

func (q *queue) enqueue(l *line) {
	l.state = lineReady
	if l.above == 0 {
		q.low = append(q.low, l)
	} else {
		q.ready = append(q.ready, l)
	}
}

func (q *queue) leave(l *line) {
	for _, list := range []*[]*line{&q.ready, &q.low} {
		if at := slices.Index(*list, l); at >= 0 {
			*list = slices.Delete(*list, at, at+1)
			return
		}
	}
}

// heapOfLines has the line in front whose first message is due first.
type heapOfLines []*line

func (h *heapOfLines) Len() int           { return len(*h) }
func (h *heapOfLines) Less(i, j int) bool { return (*h)[i].items[0].due.Before((*h)[j].items[0].due) }

func (h *heapOfLines) Swap(i, j int) {
	lines := *h
	lines[i], lines[j] = lines[j], lines[i]
	lines[i].index, lines[j].index = i, j
}

// Push implements heap.Interface.
func (h *heapOfLines) Push(x any) {
	l := x.(*line) //nolint:forcetypeassert // only lines are pushed
	l.index = len(*h)
	*h = append(*h, l)
}

// Pop implements heap.Interface.
func (h *heapOfLines) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
