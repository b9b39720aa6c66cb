//go:build unix

package chaos

import (
	"strings"
	"time"
)

// noCause is what a duplicate has that no fault explains.
const noCause = "none"

// A relay writes down that a message has arrived within a moment; what keeps it from that happens around the first copy. A network or a
// server that comes back can still take a moment to let a try fail.
const (
	before = time.Second
	after  = 2 * time.Second
)

// cause names the fault that explains a second copy: one that could have kept a relay from writing down that the first had arrived, or made
// one send what was no longer its own. Faults of processes go before those of servers, and these before those of networks.
func (e *evidence) cause(first, again time.Time) string {
	found, highest := noCause, 0
	for _, f := range e.faults {
		name, rank := f.blame()
		if rank > highest && f.near(first, again) {
			found, highest = name, rank
		}
	}
	return found
}

// near reports whether a fault can have to do with two copies.
func (f *performed) near(first, again time.Time) bool {
	within := func(t, from, to time.Time) bool { return t.After(from.Add(-before)) && t.Before(to.Add(after)) }
	switch f.Kind {
	case Kill, Term:
		return within(first, f.Began, f.Began)
	case Stop:
		return within(first, f.Began, f.Began) || within(again, f.Ended, f.Ended)
	default:
		return within(first, f.Began, f.Ended)
	}
}

// blame says what a fault is as a cause of duplicates; the rank of one that cannot be one is 0.
func (f Fault) blame() (name string, rank int) {
	switch {
	case f.Kind == PostgresFast, f.Kind == PostgresImmediate, f.Kind == PostgresKill, f.Kind == RedisTerm, f.Kind == RedisKill:
		return "server", 3
	case !strings.HasPrefix(f.Target, "relay-"):
		return "", 0
	case f.Kind == Kill:
		return "kill", 4
	case f.Kind == Stop:
		return "stop", 4
	case f.Kind == Term:
		return "term", 1
	case f.Kind == Delay, f.Kind == Throttle:
		return "slow", 2
	default:
		return "cut", 2
	}
}
