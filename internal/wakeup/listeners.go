package wakeup

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Listeners are the functions that want to know of commits: those of the relays in this process. The
// zero value has none. It is safe for concurrent use, and reading it takes no lock.
type Listeners struct {
	mu   sync.Mutex
	list atomic.Pointer[[]*listener] // replaced under mu
}

// listener has an address, by which it is found again.
type listener struct {
	notify func(wakeUps []WakeUp) (served bool)
}

// OnCommit adds a function, as [Source] describes.
func (l *Listeners) OnCommit(f func(wakeUps []WakeUp) (served bool)) (cancel func()) {
	added := &listener{f}
	l.change(func(all []*listener) []*listener { return append(all, added) })
	return func() {
		l.change(func(all []*listener) []*listener {
			return slices.DeleteFunc(all, func(one *listener) bool { return one == added })
		})
	}
}

// change replaces the list; concurrent readers keep the old one.
func (l *Listeners) change(change func([]*listener) []*listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := change(slices.Clone(l.all()))
	l.list.Store(&changed)
}

func (l *Listeners) all() []*listener {
	if list := l.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Len is the number of functions.
func (l *Listeners) Len() int { return len(l.all()) }

// Notify calls all of them. served is true if a relay in this process delivers these rows.
func (l *Listeners) Notify(wakeUps []WakeUp) (served bool) {
	for _, one := range l.all() {
		if one.notify(wakeUps) {
			served = true
		}
	}
	return served
}
