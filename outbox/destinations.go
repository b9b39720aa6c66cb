package outbox

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// destinations has a breaker for each destination of a broker that is unavailable, or was when it was last tried. The others
// have none: there may be many.
type destinations struct {
	policy  Breaker
	detours detours

	mu       sync.Mutex
	breakers map[string]*breaker
}

// of returns the breaker of a destination, nil = it has none.
func (d *destinations) of(name string) *breaker {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.breakers[name]
}

// add returns the breaker of a destination that has proved unavailable.
func (d *destinations) add(name string) *breaker {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.breakers[name]
	if b == nil {
		if d.breakers == nil {
			d.breakers = map[string]*breaker{}
		}
		if len(d.breakers) >= maxDestinations { // what has not tripped yet begins anew
			maps.DeleteFunc(d.breakers, func(_ string, b *breaker) bool { return b.closed() || b.abandoned() })
		}
		b = newBreaker(d.policy)
		d.breakers[name] = b
	}
	return b
}

// forget removes the breaker of a destination that works again.
func (d *destinations) forget(name string) {
	d.detours.works(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.breakers, name)
}

// unavailable lists the destinations whose breaker is not closed, but for those that nobody sends to any more: they may have been
// renamed, or their messages abandoned.
func (d *destinations) unavailable() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	maps.DeleteFunc(d.breakers, func(_ string, b *breaker) bool { return b.abandoned() })
	for name, b := range d.breakers {
		if !b.closed() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A call is what one delivery sends to one destination.
type call struct {
	*destinations

	name    string
	breaker *breaker // nil while the destination has none
	pass    pass
	left    int  // messages that may still be sent; negative = any number
	out     bool // it has proved unavailable, or may not be tried now
	reached bool // it has taken or judged a message
}

// call begins to send to a destination.
func (d *destinations) call(name string) *call {
	c := &call{destinations: d, name: name, breaker: d.of(name), left: -1}
	if c.breaker == nil {
		return c
	}
	var ok bool
	if c.pass, ok = c.breaker.try(); !ok {
		c.out = true
	} else if c.pass.probe {
		c.left = probeLimit
	}
	return c
}

// admit says whether another message may be sent.
func (c *call) admit() bool {
	if c.out || c.left == 0 {
		return false
	}
	c.left--
	return true
}

// fail notes that the destination is unavailable, and returns true when that is news.
func (c *call) fail() (news bool) {
	if c.out {
		return false
	}
	c.out = true
	if c.breaker == nil {
		c.breaker = c.add(c.name)
		c.pass, _ = c.breaker.try() // without one somebody else has just found the same
	}
	return c.pass.end(errOutage)
}

// detour is how long one of its messages waits that is not sent now. took is its share of the time that it took to find out.
func (c *call) detour(took time.Duration) time.Duration {
	if c.breaker == nil {
		return 0
	}
	return c.detours.delay(c.name, c.breaker.pause(), took)
}

// end returns true when the destination works again, which it did not before.
func (c *call) end() (news bool) {
	if !c.reached || c.out {
		c.pass.end(errNoOutcome)
		return false
	}
	news = c.pass.end(nil)
	if c.breaker != nil && c.breaker.closed() {
		c.forget(c.name)
	}
	return news
}
