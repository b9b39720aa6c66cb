package consumer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// world is a broker as far as queues are concerned, for one ordering key per letter: it delivers the
// messages of a key in order, and, when one is given back, that one and all behind it again, or that one
// alone and others before it; what was sent before it knew of that still arrives.
type world struct {
	rt      *rapid.T
	alone   bool
	away    map[string][]int // given back, to come again alone
	queues  *queues
	now     time.Time
	keys    []string
	total   int
	cursor  map[string]int    // the next message that is sent
	transit map[string][]int  // sent, not arrived
	acked   map[string]int    // messages below are confirmed
	claimed map[string]*Entry // by id
	under   []*Entry          // being handled
	asleep  []*Entry          // paused
	handled map[string][]int  // in the order of their first handling
}

// gap is how long the queues wait for what was given back.
const gap = time.Minute

func id(key string, n int) string { return fmt.Sprint(key, n) }

func (w *world) number(e *Entry) (key string, n int) {
	_, err := fmt.Sscanf(e.ID, "%1s%d", &key, &n)
	require.NoError(w.rt, err)
	return key, n
}

// send puts a message on its way.
func (w *world) send(key string) {
	if n := w.cursor[key]; n < w.total {
		w.transit[key] = append(w.transit[key], n)
		w.cursor[key]++
	}
}

// again sends what was given back, some of it.
func (w *world) again(key string) {
	if n := len(w.away[key]); n > 0 {
		i := rapid.IntRange(0, n-1).Draw(w.rt, "which comes again")
		w.transit[key] = append(w.transit[key], w.away[key][i])
		w.away[key] = slices.Delete(w.away[key], i, i+1)
	}
}

// arrive delivers the first message that is on its way.
func (w *world) arrive(key string) {
	if len(w.transit[key]) == 0 {
		return
	}
	n := w.transit[key][0]
	w.transit[key] = w.transit[key][1:]
	if w.queues.find(id(key, n)) != nil || n < w.acked[key] { // a copy
		return
	}
	e := &Entry{ID: id(key, n), Bytes: 1, Gap: gap, Ordered: !w.alone}
	w.claimed[e.ID] = e
	w.queues.add(e, key)
	w.check()
}

func (w *world) arriveAll() {
	for _, key := range w.keys {
		for len(w.transit[key]) > 0 {
			w.arrive(key)
		}
	}
}

// returned is what the broker does with what is given back: it begins again from there. What is on its
// way is not called back.
func (w *world) returned(back []*Entry) {
	for _, e := range back {
		key, n := w.number(e)
		require.Same(w.rt, w.claimed[e.ID], e, "what is given back was claimed")
		delete(w.claimed, e.ID)
		if w.alone {
			w.away[key] = append(w.away[key], n)
		} else {
			w.cursor[key] = min(w.cursor[key], n)
		}
		w.asleep = slices.DeleteFunc(w.asleep, func(other *Entry) bool { return other == e })
	}
}

func (w *world) work() {
	for e := w.queues.next(); e != nil; e = w.queues.next() {
		key, n := w.number(e)
		for _, other := range w.under {
			k, _ := w.number(other)
			require.NotEqual(w.rt, key, k, "two of a key at once")
		}
		require.LessOrEqual(w.rt, n, len(w.handled[key]), "%s was handled before one that comes first", e.ID)
		if n == len(w.handled[key]) {
			w.handled[key] = append(w.handled[key], n)
		}
		w.under = append(w.under, e)
		require.LessOrEqual(w.rt, len(w.under), w.queues.workers)
	}
}

// take picks one of those that are handled.
func (w *world) take() *Entry {
	i := rapid.IntRange(0, len(w.under)-1).Draw(w.rt, "which")
	e := w.under[i]
	w.under = slices.Delete(w.under, i, i+1)
	return e
}

func (w *world) done(e *Entry) {
	key, n := w.number(e)
	delete(w.claimed, e.ID)
	w.acked[key] = max(w.acked[key], n+1)
	w.returned(w.queues.done(e))
}

// check compares what the queues say with what is known.
func (w *world) check() {
	require.Len(w.rt, w.queues.byID, len(w.claimed))
	require.Equal(w.rt, len(w.claimed), w.queues.bytes)
	require.Equal(w.rt, len(w.under), w.queues.running)
	for _, e := range w.claimed {
		require.Same(w.rt, e, w.queues.find(e.ID))
	}
}

// Whatever fails, is given back, comes late or again: one at a time of a key, first handlings in
// order, and in the end all are done.
func TestQueues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{
			rt: rt, alone: rapid.Bool().Draw(rt, "alone"), away: map[string][]int{}, now: time.Unix(0, 0), keys: []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(rt, "keys")],
			total: rapid.IntRange(1, 12).Draw(rt, "messages"), cursor: map[string]int{}, transit: map[string][]int{}, acked: map[string]int{},
			claimed: map[string]*Entry{}, handled: map[string][]int{},
			queues: newQueues(rapid.IntRange(1, 3).Draw(rt, "workers"), rapid.IntRange(2, 8).Draw(rt, "room"), 1000),
		}
		key := rapid.SampledFrom(w.keys)
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(rt *rapid.T) {
				for key := key.Draw(rt, "key"); ; {
					w.send(key)
					if rapid.Bool().Draw(rt, "enough") {
						break
					}
				}
			},
			"again": func(rt *rapid.T) { w.again(key.Draw(rt, "key")) },
			"arrive": func(rt *rapid.T) {
				for key := key.Draw(rt, "key"); ; {
					w.arrive(key)
					if rapid.Bool().Draw(rt, "enough") {
						break
					}
				}
			},
			"work": func(*rapid.T) { w.work() },
			"done": func(*rapid.T) {
				if len(w.under) > 0 {
					w.done(w.take())
				}
			},
			"fail": func(*rapid.T) {
				if len(w.under) > 0 {
					e := w.take()
					w.queues.pause(e)
					w.asleep = append(w.asleep, e)
				}
			},
			"wake": func(*rapid.T) {
				if len(w.asleep) > 0 {
					w.queues.wake(w.asleep[0])
					w.asleep = w.asleep[1:]
				}
			},
			"give back": func(*rapid.T) {
				if len(w.under) > 0 {
					w.returned(w.queues.release(w.take(), w.now))
				}
			},
			"tick": func(rt *rapid.T) {
				w.now = w.now.Add(2 * gap) // by then all that was on its way, or away, has arrived
				for _, key := range w.keys {
					for len(w.away[key]) > 0 {
						w.again(key)
					}
				}
				w.arriveAll()
				w.returned(w.queues.tick(w.now, true, rapid.Bool().Draw(rt, "more")))
			},
			"": func(*rapid.T) { w.check() },
		})
		w.finish()
	})
}

// finish lets everything succeed, or stop and give back.
func (w *world) finish() {
	if rapid.Bool().Draw(w.rt, "stops") {
		w.returned(w.queues.stop())
		w.check()
		for _, e := range w.claimed {
			at := e.queue
			require.Equal(w.rt, running, at.state, "what waits only waits behind what is in progress")
		}
		for len(w.under) > 0 {
			if e := w.take(); rapid.Bool().Draw(w.rt, "fails") {
				w.returned(w.queues.release(e, w.now))
			} else {
				w.done(e)
			}
			w.check()
		}
		assert.Empty(w.rt, w.claimed)
		assert.Empty(w.rt, w.queues.byKey)
		assert.Nil(w.rt, w.queues.next())
		return
	}
	for range 20 * (w.total + 1) {
		for _, key := range w.keys {
			w.send(key)
			for len(w.away[key]) > 0 {
				w.again(key)
			}
		}
		w.arriveAll()
		for _, e := range w.asleep {
			w.queues.wake(e)
		}
		w.asleep = nil
		w.work()
		for len(w.under) > 0 {
			w.done(w.under[0])
			w.under = w.under[1:]
		}
		w.now = w.now.Add(gap / 4)
		w.returned(w.queues.tick(w.now, true, false))
	}
	for _, key := range w.keys {
		assert.Equal(w.rt, w.total, w.acked[key], "key %s", key)
	}
	assert.Empty(w.rt, w.claimed)
	assert.Empty(w.rt, w.queues.byKey, "nothing is remembered of keys that are done")
}

// The room is full of what waits behind a head that has failed: a quarter goes back, the last first. What
// comes before it comes again waits for it.
func TestFull(t *testing.T) {
	t.Parallel()
	l := newQueues(2, 8, 1000)
	add := func(key string, n int) { l.add(&Entry{ID: id(key, n), Gap: gap}, key) }
	for n := range 7 {
		add("a", n)
	}
	add("b", 0)
	now := time.Unix(0, 0)
	require.Empty(t, l.tick(now, true, true), "there is something to do")
	a, b := l.next(), l.next()
	require.Empty(t, l.tick(now, true, true), "all workers have something to do")
	l.pause(a)
	ids := func(entries []*Entry) (ids []string) {
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		return ids
	}
	assert.Equal(t, []string{"a5", "a6"}, ids(l.tick(now, true, false)))
	add("a", 7)
	add("a", 5)
	assert.Equal(t, []string{"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7"}, ids(a.queue.entries))
	assert.Equal(t, []string{"a5", "a7"}, ids(l.tick(now, true, true)))
	require.Empty(t, l.done(b))
	for n := 4; n > 0; {
		back := ids(l.tick(now, true, true))
		require.NotEmpty(t, back)
		for i := range back {
			assert.Equal(t, id("a", n-len(back)+1+i), back[i])
		}
		n -= len(back)
	}
	assert.Equal(t, []string{"a0"}, ids(l.tick(now, true, true)), "where nothing else is left, what waits for its next attempt goes")
	require.Empty(t, l.tick(now, true, true))
	require.Len(t, l.byKey, 1)
	add("a", 1)
	require.Nil(t, l.next(), "it waits for a0")
	require.Empty(t, l.tick(now.Add(gap), true, false))
	require.Equal(t, "a1", l.next().ID, "which does not come")
}
