package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/inbox"
)

// line is what queues with an order of their own must do, said in the simplest way: two streams, of which
// one has low messages alone, and whose keys are the same. Position is the number within the stream.
type line struct {
	queues  *queues
	next    [2]int
	waiting map[*Entry]bool
	paused  map[*Entry]bool // of these
	busy    []*Entry
	had     map[*queue]bool // one that is not low, which was lost
	age     map[*Entry]int  // how often others had their turn while it could have had its
}

func streamOf(e *Entry) (low bool, n int) { return e.Low, e.Bytes }

// precedes is the order within each of the streams.
func precedes(a, b *Entry) bool {
	low, n := streamOf(a)
	other, m := streamOf(b)
	return low == other && n < m
}

func (l *line) add(t *rapid.T) {
	stream := rapid.IntRange(0, 1).Draw(t, "stream")
	l.next[stream] += 2
	l.insert(t, stream, l.next[stream])
}

// addOlder adds a message that another process had claimed: it is older than what is there.
func (l *line) addOlder(t *rapid.T) {
	stream := rapid.IntRange(0, 1).Draw(t, "stream")
	if l.next[stream] < 4 {
		t.Skip("there is nothing older")
	}
	l.insert(t, stream, 2*rapid.IntRange(1, l.next[stream]/2-1).Draw(t, "id")-1)
}

func (l *line) insert(t *rapid.T, stream, n int) {
	id := fmt.Sprint(stream, " ", n)
	if l.queues.find(id) != nil {
		return
	}
	key := ""
	if k := rapid.IntRange(0, 4).Draw(t, "key"); k > 0 {
		key = fmt.Sprint(k)
	}
	e := &Entry{ID: id, Bytes: n, Low: stream == 1, Message: &inbox.Message{OrderingKey: key}}
	l.queues.add(e, key)
	l.waiting[e] = true
}

// handles reports whether a message of the key is being handled.
func (l *line) handles(key string) bool {
	return key != "" && slices.ContainsFunc(l.busy, func(e *Entry) bool { return e.Message.OrderingKey == key })
}

// first reports whether it is the turn of a message within its key.
func (l *line) first(e *Entry) bool {
	return !l.handles(e.Message.OrderingKey) && e.queue.entries[0] == e
}

func (l *line) take(t *rapid.T) {
	e := l.queues.next()
	if e == nil {
		for other := range l.waiting {
			require.False(t, l.first(other) && !l.paused[other], "%s could be handled, and is not", other.ID)
		}
		return
	}
	require.True(t, l.waiting[e], "it was taken twice, or is gone")
	require.False(t, l.handles(e.Message.OrderingKey), "two at once of a key")
	for other := range l.waiting {
		require.False(t, other.Message.OrderingKey == e.Message.OrderingKey && e.Message.OrderingKey != "" && precedes(other, e), "an older one waits")
		if slices.ContainsFunc(e.queue.entries, func(behind *Entry) bool { return !behind.Low }) || l.had[e.queue] {
			continue // the key has others, or had when it got its turn
		}
		require.False(t, e.Low && !other.Low && l.first(other) && !l.paused[other], "one that is not low could be handled")
	}
	delete(l.waiting, e)
	delete(l.paused, e)
	delete(l.age, e)
	l.busy = append(l.busy, e)
	for other := range l.waiting {
		if l.first(other) && !l.paused[other] && !e.Low && !other.Low {
			l.age[other]++
			require.LessOrEqual(t, l.age[other], len(l.waiting)+len(l.busy)+40, "it starves")
		}
	}
}

func (l *line) ended(t *rapid.T) *Entry {
	if len(l.busy) == 0 {
		t.Skip("there is none")
	}
	i := rapid.IntRange(0, len(l.busy)-1).Draw(t, "which")
	e := l.busy[i]
	l.busy = slices.Delete(l.busy, i, i+1)
	return e
}

func (l *line) done(t *rapid.T) { l.queues.done(l.ended(t)) }

func (l *line) pause(t *rapid.T) {
	e := l.ended(t)
	l.waiting[e], l.paused[e] = true, true
	l.queues.pause(e)
}

func (l *line) draw(t *rapid.T, from map[*Entry]bool) *Entry {
	all := slices.SortedFunc(maps.Keys(from), func(a, b *Entry) int { return strings.Compare(a.ID, b.ID) })
	if len(all) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(all).Draw(t, "entry")
}

func (l *line) wake(t *rapid.T) {
	e := l.draw(t, l.paused)
	delete(l.paused, e)
	l.queues.wake(e)
}

// lose gives up one that waits: another process has it.
func (l *line) lose(t *rapid.T) {
	e := l.draw(t, l.waiting)
	delete(l.waiting, e)
	delete(l.paused, e)
	l.had[e.queue] = l.had[e.queue] || !e.Low
	back, under := l.queues.withdraw(time.Unix(0, 0), func(other *Entry) bool { return other == e })
	require.Equal(t, []*Entry{e}, back)
	require.Empty(t, under)
}

func (l *line) check(t *rapid.T) {
	require.Len(t, l.queues.byID, len(l.waiting)+len(l.busy))
	for e := range l.paused { // a later wake-up finds a queue that waits, or one with others before it
		if e.queue.entries[0] != e || e.queue.state == ready {
			delete(l.paused, e) // its time is looked at when it is its turn
		}
	}
	for _, at := range l.queues.byKey {
		for i, e := range at.entries {
			if i > 0 && at.state != running {
				require.False(t, precedes(e, at.entries[i-1]))
			}
		}
	}
}

// Whatever happens: messages of a key and a stream come one after the other and in order, low ones after the
// others, nothing that could be handled waits forever or is handed out twice, and nothing is left
// behind.
func TestOrderOfQueues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &line{queues: newQueues(1000, 0, 0), waiting: map[*Entry]bool{}, paused: map[*Entry]bool{}, had: map[*queue]bool{}, age: map[*Entry]int{}}
		l.queues.before = precedes
		t.Repeat(map[string]func(*rapid.T){
			"add": l.add, "add2": l.add, "older": l.addOlder, "take": l.take, "take2": l.take, "done": l.done, "pause": l.pause, "wake": l.wake,
			"lose": l.lose, "": l.check,
		})
		for len(l.waiting)+len(l.busy) > 0 {
			for e := range l.paused {
				delete(l.paused, e)
				l.queues.wake(e)
			}
			l.take(t)
			for _, e := range l.busy {
				l.queues.done(e)
			}
			l.busy = nil
		}
		require.Empty(t, l.queues.byKey)
		require.False(t, l.queues.hasReady())
	})
}

// A worker whose message waits for its next attempt is free for others.
func TestWorkerOfAFailedMessageIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := settings(func(_ context.Context, m *inbox.Message) error {
			if m.ID == "1" {
				return errors.New("not yet")
			}
			return nil
		})
		set.Workers = 1
		s := New(t.Context(), &set)
		var broker told
		s.Take(entry("a", "1"), &broker)
		s.Take(entry("b", "2"), &broker)
		synctest.Wait()
		assert.Equal(t, int64(1), broker.acks.Load())
		s.Stop(func() {})
	})
}

// What was unloaded is brought back before anything is done with it: an outage meanwhile makes it wait, and what
// is gone is done with.
func TestUnloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var handled []string
		set := settings(func(_ context.Context, m *inbox.Message) error {
			if m.ID == "1" && handled == nil {
				handled = []string{}
				return errors.New("not yet")
			}
			handled = append(handled, m.ID)
			return nil
		})
		unloaded, out := map[string]*inbox.Message{}, true
		set.Load = func(_ context.Context, e *Entry) error {
			if e.Message != nil {
				return nil
			}
			switch {
			case e.ID == "3":
				return fmt.Errorf("trimmed: %w", ErrGone)
			case out:
				out = false
				return errors.New("no answer")
			}
			e.Message = unloaded[e.ID]
			return nil
		}
		s := New(t.Context(), &set)
		var broker told
		for n := range 5 {
			s.Take(entry("a", fmt.Sprint(n+1)), &broker)
		}
		synctest.Wait()
		assert.True(t, s.Idle())
		var order []string
		s.Unload(4, func(e *Entry) bool {
			order = append(order, e.ID)
			if e.ID == "4" {
				return false // it stays
			}
			unloaded[e.ID], e.Message = e.Message, nil
			return true
		})
		assert.Equal(t, []string{"5", "4", "3", "2", "1"}, order, "those first that wait for longest")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"1", "2", "4", "5"}, handled)
		assert.False(t, out)
		assert.Equal(t, int64(5), broker.acks.Load())
		s.Stop(func() {})
	})
}

// A session is still when no handler runs, and hands out nothing until it is to go on; one whose handlers take too
// long hands out again without being told to.
func TestStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		set := settings(func(context.Context, *inbox.Message) error {
			<-let
			return nil
		})
		s := New(t.Context(), &set)
		var broker told
		s.Take(entry("a", "1"), &broker)
		s.Take(entry("a", "2"), &broker)
		assert.False(t, s.Still(t.Context(), time.Second))
		let <- struct{}{}
		synctest.Wait()
		go func() { let <- struct{}{} }()
		assert.True(t, s.Still(t.Context(), time.Second))
		s.Take(entry("b", "3"), &broker)
		assert.False(t, s.Idle())
		_, running := s.Figures()
		assert.Zero(t, running)
		s.Resume()
		let <- struct{}{}
		synctest.Wait()
		assert.Equal(t, int64(3), broker.acks.Load())
		s.Stop(func() {})
	})
}
