package redisstreams

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// queueModel is what a queue must do, said in the simplest way.
type queueModel struct {
	queue   queue
	now     time.Time
	lanes   [2]lane
	next    [2]uint64
	waiting map[*item]bool
	busy    map[string]*item // by key
	loose   map[*item]bool   // busy ones without a key
	all     []*item          // in the order in which they came
	age     map[*item]int    // how often others of other keys had their turn while it could have had its
}

func (m *queueModel) add(t *rapid.T) {
	lane := rapid.IntRange(0, 1).Draw(t, "lane")
	m.next[lane] += 2
	m.insert(t, lane, m.next[lane])
}

// addOlder adds an entry that was taken over from another consumer: it is older than what is there.
func (m *queueModel) addOlder(t *rapid.T) {
	lane := rapid.IntRange(0, 1).Draw(t, "lane")
	if m.next[lane] < 4 {
		t.Skip("there is nothing older")
	}
	m.insert(t, lane, 2*rapid.Uint64Range(1, m.next[lane]/2-1).Draw(t, "id")-1)
}

func (m *queueModel) insert(t *rapid.T, lane int, id uint64) {
	it := &item{lane: &m.lanes[lane], id: entryID{id, 0}}
	if key := rapid.IntRange(0, 4).Draw(t, "key"); key > 0 {
		it.key = fmt.Sprint(key)
	}
	m.queue.add(it)
	m.waiting[it] = true
	m.all = append(m.all, it)
}

// take takes the next message, and checks that it may be taken.
func (m *queueModel) take(t *rapid.T) {
	it := m.queue.next(m.now)
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
		if other != it && other.key == it.key && other.lane == it.lane && other.id.before(it.id) {
			return false
		}
	}
	return it.line.items[0] == it
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

func (m *queueModel) settle(it *item) {
	if it.key == "" {
		delete(m.loose, it)
	} else {
		delete(m.busy, it.key)
	}
}

func (m *queueModel) finish(t *rapid.T) {
	it := m.anyBusy(t)
	m.settle(it)
	m.queue.finish(it)
}

func (m *queueModel) again(t *rapid.T) {
	it := m.anyBusy(t)
	m.settle(it)
	m.waiting[it] = true
	m.queue.again(it, m.now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "pause"))*time.Second))
}

// drop takes out one that waits: another consumer has it now.
func (m *queueModel) drop(t *rapid.T) {
	it := m.draw(t, func(it *item) bool { return m.waiting[it] })
	delete(m.waiting, it)
	delete(m.age, it)
	m.queue.finish(it)
}

func (m *queueModel) tick(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second)
}

// check compares what the queue says of itself.
func (m *queueModel) check(t *rapid.T) {
	lines := map[string]int{}
	for it := range m.waiting {
		if it.key != "" {
			lines[it.key]++
		}
	}
	for key := range m.busy {
		lines[key]++
	}
	require.Len(t, m.queue.lines, len(lines), "lines that are empty are gone")
	for key, l := range m.queue.lines {
		require.Len(t, l.items, lines[key])
	}
	if due, ok := m.queue.due(); ok {
		found := false
		for it := range m.waiting {
			found = found || it.due.Equal(due)
		}
		require.True(t, found, "somebody waits for that time")
	}
}

// Whatever happens: messages of a key and a stream come one after the other and in order, nothing that could be handled waits for ever or is
// handed out twice, and nothing is left behind.
func TestQueue(t *testing.T) {
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
				m.settle(it)
				m.queue.finish(it)
			}
			for it := range m.loose {
				m.settle(it)
				m.queue.finish(it)
			}
		}
		m.check(t)
		require.Empty(t, m.queue.ready)
		require.Empty(t, m.queue.later)
	})
}
