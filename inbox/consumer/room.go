package consumer

import (
	"cmp"
	"slices"
	"time"
)

// tick ends the wait for what has not come again in time, and, where the hands are full of messages
// that wait while workers are idle, returns a quarter of all to be given back, the last ones of the
// longest queue first. waiting is true where more messages have arrived than can be taken.
func (l *queues) tick(now time.Time, giveBack, waiting bool) (back []*Entry) {
	if l.stopping {
		return nil
	}
	for _, at := range l.byKey {
		head := at.entries[0]
		back = append(back, l.expire(at, now)...)
		l.settle(at, head)
	}
	full := waiting || len(l.byID) >= l.maxMessages || l.bytes >= l.maxBytes
	if !giveBack || !full || !l.hasWorker() || l.hasReady() {
		return back
	}
	for quota := (len(l.byID) + 3) / 4; len(back) < quota; {
		at, n := l.longest()
		if at == nil {
			break
		}
		if at.state != running && n > 1 {
			n-- // the head goes last
		}
		back = append(back, l.cut(at, min(n, quota-len(back)), now)...)
	}
	return back
}

// expire ends the wait for what has not come again in time.
func (l *queues) expire(at *queue, now time.Time) (back []*Entry) {
	expired := func(e *Entry) bool { return !e.until.IsZero() && !now.Before(e.until) }
	first := slices.IndexFunc(at.entries, expired)
	switch {
	case first < 0:
	case at.ordered:
		for _, e := range at.entries[first:] {
			if !e.over {
				l.end(e)
				back = append(back, e)
			}
		}
		at.entries = at.entries[:first]
	default:
		at.entries = slices.DeleteFunc(at.entries, expired)
	}
	return back
}

// longest is the queue with the most messages that can be given back, and how many; nil for none. Those that
// wait to be read do not wait for long.
func (l *queues) longest() (found *queue, most int) {
	for _, at := range l.byKey {
		n := 0
		for i, e := range at.entries {
			if !e.over && !at.unread && (i > 0 || at.state != running) {
				n++
			}
		}
		if n > most || n == most && n > 0 && at.key < found.key {
			found, most = at, n
		}
	}
	return found, most
}

// cut removes the last n messages of a queue, which wait.
func (l *queues) cut(at *queue, n int, now time.Time) []*Entry {
	first := len(at.entries)
	for n > 0 {
		if first--; !at.entries[first].over {
			n--
		}
	}
	head, last := at.entries[0], at.entries[first:]
	back := l.remove(at, now, func(e *Entry) bool { return slices.Contains(last, e) })
	l.settle(at, head)
	return back
}

// last are the messages that are not being handled and could not be, those first that wait for longest:
// the followers in the longest queues, the last ones first, then heads of queues by their next attempt. Those
// that wait to be read do not wait for long.
func (l *queues) last() []*Entry {
	var behind [][]*Entry
	var heads []*Entry
	for _, at := range l.byKey {
		if at.unread {
			continue
		}
		if at.state == paused {
			heads = append(heads, at.entries[0])
		}
		followers := slices.DeleteFunc(slices.Clone(at.entries[1:]), func(e *Entry) bool { return e.over })
		slices.Reverse(followers)
		behind = append(behind, followers)
	}
	slices.SortFunc(behind, func(a, b []*Entry) int { return cmp.Compare(len(b), len(a)) })
	slices.SortFunc(heads, func(a, b *Entry) int { return b.due.Compare(a.due) })
	return slices.Concat(append(behind, heads)...)
}
