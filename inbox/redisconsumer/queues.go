package redisconsumer

import (
	"container/heap"
	"slices"
	"time"
)

// queues say what is to be handled next: messages of one key one after the other, in the order of
// their stream, and keys by turns. They know neither clock nor goroutines. The zero value is ready.
type queues struct {
	byKey map[string]*queue // queues of messages without a key are in no map
	ready []*queue          // whose turn it is, first come first served
	low   []*queue          // of backfills alone: whose turn it is when no other's is
	later dueQueues         // whose first message waits for its time
}

// A queue holds the messages of one key.
type queue struct {
	key   string
	items []*item
	above int // items that are of no backfill
	state queueState
	index int // within later
}

type queueState int

const (
	queueIdle  queueState = iota
	queueReady            // stands in ready
	queueLater            // stands in later
	queueBusy             // its first message is being handled
)

// add puts a message into its queue: behind those that are there, but before younger ones of its
// own stream that are not being handled.
func (qs *queues) add(it *item) {
	q := qs.queueOf(it.key)
	it.queue = q
	at := len(q.items)
	first := 0
	if q.state == queueBusy {
		first = 1
	}
	for i := len(q.items) - 1; i >= first; i-- {
		if other := q.items[i]; other.stream == it.stream {
			if other.id.before(it.id) {
				break
			}
			at = i
		}
	}
	q.items = append(q.items, nil)
	copy(q.items[at+1:], q.items[at:])
	q.items[at] = it
	if it.stream.primary == nil {
		if q.above++; q.above == 1 && q.state == queueReady { // it need not wait like a backfill any more
			qs.leave(q)
			qs.enqueue(q)
		}
	}
	if at == 0 {
		qs.arrange(q)
	}
}

func (qs *queues) queueOf(key string) *queue {
	if key == "" {
		return &queue{}
	}
	if qs.byKey == nil {
		qs.byKey = map[string]*queue{}
	}
	q := qs.byKey[key]
	if q == nil {
		q = &queue{key: key}
		qs.byKey[key] = q
	}
	return q
}

// next takes the message whose turn it is, nil = there is none now. It has to be given to finish or
// again afterwards.
func (qs *queues) next(now time.Time) *item {
	for len(qs.later) > 0 && !qs.later[0].items[0].due.After(now) {
		q := qs.later[0]
		heap.Pop(&qs.later)
		q.items[0].due = time.Time{}
		qs.enqueue(q)
	}
	from := &qs.ready
	if len(qs.ready) == 0 {
		from = &qs.low
	}
	if len(*from) == 0 {
		return nil
	}
	q := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	q.state = queueBusy
	return q.items[0]
}

// hasReady reports whether a message could be handled at once.
func (qs *queues) hasReady() bool { return len(qs.ready)+len(qs.low) > 0 }

// urgent reports whether one that is of no backfill could.
func (qs *queues) urgent() bool { return len(qs.ready) > 0 }

// due is when the next message that waits for its time may be handled.
func (qs *queues) due() (at time.Time, ok bool) {
	if len(qs.later) == 0 {
		return time.Time{}, false
	}
	return qs.later[0].items[0].due, true
}

// finish takes a message out, whether it is being handled or waits. Its key goes on.
func (qs *queues) finish(it *item) {
	q := it.queue
	if q == nil {
		return
	}
	it.queue = nil
	for at, other := range q.items {
		if other != it {
			continue
		}
		q.items = append(q.items[:at], q.items[at+1:]...)
		if it.stream.primary == nil {
			q.above--
		}
		if at == 0 {
			qs.arrange(q)
		}
		return
	}
}

// again has a message that was being handled wait until its time has come. Its key waits with it.
func (qs *queues) again(it *item, due time.Time) {
	it.due = due
	q := it.queue
	at := 0 // behind older ones that came while it was being handled
	for i := 1; i < len(q.items); i++ {
		if other := q.items[i]; other.stream == it.stream {
			if it.id.before(other.id) {
				break
			}
			at = i
		}
	}
	copy(q.items, q.items[1:at+1])
	q.items[at] = it
	qs.arrange(q)
}

// arrange gives a queue whose first message has changed its place.
func (qs *queues) arrange(q *queue) {
	switch q.state {
	case queueReady:
		if len(q.items) > 0 && q.items[0].due.IsZero() {
			return // it keeps its turn
		}
		qs.leave(q)
	case queueLater:
		heap.Remove(&qs.later, q.index)
	case queueIdle, queueBusy: // it stands nowhere
	}
	switch {
	case len(q.items) == 0:
		q.state = queueIdle
		if q.key != "" {
			delete(qs.byKey, q.key)
		}
	case q.items[0].due.IsZero():
		qs.enqueue(q)
	default:
		q.state = queueLater
		heap.Push(&qs.later, q)
	}
}

func (qs *queues) enqueue(q *queue) {
	q.state = queueReady
	if q.above == 0 {
		qs.low = append(qs.low, q)
	} else {
		qs.ready = append(qs.ready, q)
	}
}

func (qs *queues) leave(q *queue) {
	for _, list := range []*[]*queue{&qs.ready, &qs.low} {
		if at := slices.Index(*list, q); at >= 0 {
			*list = slices.Delete(*list, at, at+1)
			return
		}
	}
}

// dueQueues has the queue in front whose first message is due first.
type dueQueues []*queue

func (h *dueQueues) Len() int           { return len(*h) }
func (h *dueQueues) Less(i, j int) bool { return (*h)[i].items[0].due.Before((*h)[j].items[0].due) }

func (h *dueQueues) Swap(i, j int) {
	byKey := *h
	byKey[i], byKey[j] = byKey[j], byKey[i]
	byKey[i].index, byKey[j].index = i, j
}

// Push implements heap.Interface.
func (h *dueQueues) Push(x any) {
	q := x.(*queue) //nolint:forcetypeassert // only queues are pushed
	q.index = len(*h)
	*h = append(*h, q)
}

// Pop implements heap.Interface.
func (h *dueQueues) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
