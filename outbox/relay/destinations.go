package relay

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// destinations has a breaker for each destination of a broker that is unavailable, or was when it
// was last tried. The others have none: there may be many. It also spreads the next tries of their
// messages: were they all tried again after the same delay, many of them would keep the workers
// from everything else, since they are older than what has come since.
type destinations struct {
	policy outbox.Breaker

	mu       sync.Mutex
	breakers map[string]*breaker
	next     map[string]time.Time // when the last message of a destination is tried again
	parts    map[string]*span     // of partitions of a destination
}

// A span is from when to when something was found to be out.
type span struct{ since, last time.Time }

const (
	// spread is how many times as long as the last try took lies between two tries, all messages of
	// a destination together.
	spread = 4
	// maxWait bounds how long a message waits, and so how late it arrives when its destination is
	// back.
	maxWait = time.Hour
	// maxDestinations bounds the memory for them. What is forgotten is tried again too early once.
	maxDestinations = 1000
	// partitionWait bounds the same for a partition, in delays of the breaker: what is there is tried by
	// other messages as well, so it is known soon when it is back.
	partitionWait = 4
	// partitionSuffix makes of a destination's name that of its partitions that are out, all together.
	partitionSuffix = "\x00partition"
)

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
			maps.DeleteFunc(d.breakers, func(_ string, b *breaker) bool { return b.closed() || b.unused() })
		}
		b = newBreaker(d.policy)
		d.breakers[name] = b
	}
	return b
}

// forget removes what is known of a destination that works again.
func (d *destinations) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.breakers, name)
	delete(d.next, name)
}

// unavailable lists the destinations whose breaker is not closed, but for those that get no
// messages any more: they may have been renamed, or their messages abandoned.
func (d *destinations) unavailable() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	maps.DeleteFunc(d.breakers, func(_ string, b *breaker) bool { return b.unused() })
	for name, b := range d.breakers {
		if !b.closed() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// delay is how long one more message of a destination waits, at least the given time; took is its
// share of the time of the try.
func (d *destinations) delay(name string, least, took time.Duration) time.Duration {
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
	if latest := now.Add(max(maxWait, least)); next.After(latest) {
		next = latest
	}
	d.next[name] = next
	return next.Sub(now)
}

// partitionDelay is how long a message waits whose partition is out: for as long as messages of
// the destination have met that, within the bounds of the breaker's policy. news is true for the
// first one.
func (d *destinations) partitionDelay(name string, took time.Duration) (delay time.Duration, news bool) {
	now := time.Now()
	d.mu.Lock()
	part := d.parts[name]
	if news = part == nil || now.Sub(part.last) > 2*d.policy.MaxDelay; news {
		if d.parts == nil || len(d.parts) >= maxDestinations {
			d.parts = map[string]*span{}
		}
		part = &span{since: now}
		delete(d.next, name+partitionSuffix)
		d.parts[name] = part
	}
	part.last = now
	least := min(max(now.Sub(part.since), d.policy.MinDelay), d.policy.MaxDelay)
	d.mu.Unlock()
	return min(d.delay(name+partitionSuffix, least, took), partitionWait*d.policy.MaxDelay), news
}

// A destination is what one delivery sends to it.
type destination struct {
	all     *destinations
	name    string
	breaker *breaker // nil while it has none
	pass    pass
	probes  probes
	out     bool // it has proved unavailable, or may not be tried now
	reached bool // it has taken or judged a message
}

// try begins to send to a destination.
func (d *destinations) try(name string) *destination {
	d.mu.Lock()
	to := &destination{all: d, name: name, breaker: d.breakers[name], probes: probes{-1, -1}}
	d.mu.Unlock()
	if to.breaker != nil {
		var ok bool
		to.pass, ok = to.breaker.try()
		to.out = !ok
	}
	if to.pass.probe {
		to.probes = probes{probeLimit, probeLimit}
	}
	return to
}

// admit says whether another message may be sent.
func (d *destination) admit(suspect bool) bool { return !d.out && d.probes.admit(suspect) }

// probes are how many messages may still be sent in a try of what was unavailable: some that nothing is
// known against, and some that were refused before, or met an outage. Where these come through, too,
// it is over; where they alone do not, it was theirs. Negative: any number.
type probes struct{ unsuspected, suspects int }

func (p *probes) admit(suspect bool) bool {
	left := &p.unsuspected
	if suspect {
		left = &p.suspects
	}
	if *left == 0 {
		return false
	}
	*left--
	return true
}

// fail notes why the destination is unavailable, and returns true when that is to be reported.
func (d *destination) fail(cause error) (news bool) {
	if d.out {
		return false
	}
	d.out = true
	if d.breaker == nil {
		d.breaker = d.all.add(d.name)
		d.pass, _ = d.breaker.try() // without one another worker has just found the same
	}
	return d.pass.end(cause)
}

// delay is how long one of its messages waits that is not sent now. took is its share of the time
// that it took to find out.
func (d *destination) delay(took time.Duration) time.Duration {
	if d.breaker == nil {
		return 0
	}
	return d.all.delay(d.name, d.breaker.pause(), took)
}

// end returns true when the destination works again, which it did not before.
func (d *destination) end() (news bool) {
	if !d.reached || d.out {
		d.pass.end(errNoOutcome)
		return false
	}
	news = d.pass.end(nil)
	if d.breaker != nil && d.breaker.closed() {
		d.all.forget(d.name)
	}
	return news
}
