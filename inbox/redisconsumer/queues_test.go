package redisconsumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// queueModel is what the queues must do, said in the simplest way.
type queueModel struct {
	queues  queues
	now     time.Time
	streams [2]stream
	next    [2]uint64
	waiting map[*item]bool
	busy    map[string]*item // by key
	loose   map[*item]bool   // busy ones without a key
	all     []*item          // in the order in which they came
	age     map[*item]int    // how often others of other keys had their turn while it could have had its
}

func (m *queueModel) add(t *rapid.T) {
	stream := rapid.IntRange(0, 1).Draw(t, "stream")
	m.next[stream] += 2
	m.insert(t, stream, m.next[stream])
}

// addOlder adds an entry that was taken over from another consumer: it is older than what is there.
func (m *queueModel) addOlder(t *rapid.T) {
	stream := rapid.IntRange(0, 1).Draw(t, "stream")
	if m.next[stream] < 4 {
		t.Skip("there is nothing older")
	}
	m.insert(t, stream, 2*rapid.Uint64Range(1, m.next[stream]/2-1).Draw(t, "id")-1)
}

func (m *queueModel) insert(t *rapid.T, stream int, id uint64) {
	it := &item{stream: &m.streams[stream], id: entryID{id, 0}}
	if key := rapid.IntRange(0, 4).Draw(t, "key"); key > 0 {
		it.key = fmt.Sprint(key)
	}
	m.queues.add(it)
	m.waiting[it] = true
	m.all = append(m.all, it)
}

// take takes the next message, and checks that it may be taken.
func (m *queueModel) take(t *rapid.T) {
	it := m.queues.next(m.now)
	if it == nil {
		for other := range m.waiting {
			if (other.key == "" || m.busy[other.key] == nil) && m.first(other) {
				require.True(t, other.due.After(m.now), "%v of key %q could be handled, and is not", other.id, other.key)
			}
		}
		return
	}
	require.True(t, m.waiting[it], "it was taken twice, or is gone")
	require.False(t, it.due.After(m.now), "it is not due")
	require.True(t, m.first(it), "an older one of its key waits")
	delete(m.waiting, it)
	delete(m.age, it)
	if it.key == "" {
		m.loose[it] = true
	} else {
		require.Nil(t, m.busy[it.key], "two at once of a key")
		m.busy[it.key] = it
	}
	for other := range m.waiting {
		if other.due.IsZero() && m.first(other) && (other.key == "" || m.busy[other.key] == nil) {
			m.age[other]++
			require.LessOrEqual(t, m.age[other], len(m.waiting)+len(m.busy)+len(m.loose)+40, "it starves")
		}
	}
}

// first reports whether no older one of its key and stream waits.
func (m *queueModel) first(it *item) bool {
	if it.key == "" {
		return true
	}
	for other := range m.waiting {
		if other != it && other.key == it.key && other.stream == it.stream && other.id.before(it.id) {
			return false
		}
	}
	return it.queue.items[0] == it
}

// draw chooses one of those that are chosen.
func (m *queueModel) draw(t *rapid.T, chosen func(*item) bool) *item {
	var some []*item
	for _, it := range m.all {
		if chosen(it) {
			some = append(some, it)
		}
	}
	if len(some) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(some).Draw(t, "item")
}

func (m *queueModel) anyBusy(t *rapid.T) *item {
	return m.draw(t, func(it *item) bool { return m.loose[it] || it.key != "" && m.busy[it.key] == it })
}

func (m *queueModel) ended(it *item) {
	if it.key == "" {
		delete(m.loose, it)
	} else {
		delete(m.busy, it.key)
	}
}

func (m *queueModel) finish(t *rapid.T) {
	it := m.anyBusy(t)
	m.ended(it)
	m.queues.finish(it)
}

func (m *queueModel) again(t *rapid.T) {
	it := m.anyBusy(t)
	m.ended(it)
	m.waiting[it] = true
	m.queues.again(it, m.now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "pause"))*time.Second))
}

// drop takes out one that waits: another consumer has it now.
func (m *queueModel) drop(t *rapid.T) {
	it := m.draw(t, func(it *item) bool { return m.waiting[it] })
	delete(m.waiting, it)
	delete(m.age, it)
	m.queues.finish(it)
}

func (m *queueModel) tick(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second)
}

// check compares what the queues say of themselves.
func (m *queueModel) check(t *rapid.T) {
	sizes := map[string]int{}
	for it := range m.waiting {
		if it.key != "" {
			sizes[it.key]++
		}
	}
	for key := range m.busy {
		sizes[key]++
	}
	require.Len(t, m.queues.byKey, len(sizes), "queues that are empty are gone")
	for key, q := range m.queues.byKey {
		require.Len(t, q.items, sizes[key])
	}
	if due, ok := m.queues.due(); ok {
		found := false
		for it := range m.waiting {
			found = found || it.due.Equal(due)
		}
		require.True(t, found, "a timer waits for that time")
	}
}

// Whatever happens: messages of a key and a stream come one after the other and in order, nothing
// that could be handled waits for ever or is handed out twice, and nothing is left behind.
func TestQueues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &queueModel{
			now: time.Unix(0, 0), waiting: map[*item]bool{}, busy: map[string]*item{}, loose: map[*item]bool{}, age: map[*item]int{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": m.add, "add2": m.add, "older": m.addOlder, "take": m.take, "take2": m.take, "finish": m.finish, "again": m.again, "drop": m.drop, "tick": m.tick, "": m.check,
		})
		for len(m.waiting)+len(m.busy)+len(m.loose) > 0 { // and in the end everything comes to its end
			m.now = m.now.Add(time.Hour)
			m.take(t)
			for _, it := range m.busy {
				m.ended(it)
				m.queues.finish(it)
			}
			for it := range m.loose {
				m.ended(it)
				m.queues.finish(it)
			}
		}
		m.check(t)
		require.Empty(t, m.queues.ready)
		require.Empty(t, m.queues.later)
	})
}
