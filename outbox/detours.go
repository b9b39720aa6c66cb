package outbox

import (
	"sync"
	"time"
)

// detours spreads the next tries of messages whose destination is unavailable. Were they all tried again after the same
// delay, many of them would keep the workers from everything else for good: they are older than what has come since.
type detours struct {
	mu   sync.Mutex
	next map[string]time.Time // by destination: when the last of its messages is tried again
}

const (
	// spread is how many times as long as the last try took lies between two tries, all messages of a destination together.
	spread = 4
	// maxDetour bounds the delay of a message, and so how late it arrives when its destination is back.
	maxDetour = time.Hour
	// maxDestinations bounds the memory for them. What is forgotten is tried again too early once.
	maxDestinations = 1000
)

// delay of one more message, at least the given time; took is its share of the time of the try.
func (d *detours) delay(name string, least, took time.Duration) time.Duration {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == nil || len(d.next) >= maxDestinations {
		d.next = map[string]time.Time{}
	}
	next, earliest := d.next[name].Add(spread*took), now.Add(least)
	if next.Before(earliest) {
		next = earliest
	}
	if latest := now.Add(max(maxDetour, least)); next.After(latest) {
		next = latest
	}
	d.next[name] = next
	return next.Sub(now)
}

// works forgets a destination that is available again.
func (d *detours) works(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.next, name)
}
