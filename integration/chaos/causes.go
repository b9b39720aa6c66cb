//go:build unix

package chaos

import (
	"strings"
	"time"
)

// noCause marks a duplicate that no fault explains.
const noCause = "none"

// A relay records a confirmation within a moment, so a fault that prevents it is close to the first
// copy. A network or a server that has recovered can still fail an attempt shortly afterwards.
const (
	before = time.Second
	after  = 2 * time.Second
)

// cause names the fault that explains a second copy: one that can have prevented a relay from
// recording the first, or made a relay send rows whose lease it had lost. Faults of processes take
// precedence over those of servers, and these over those of networks.
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

// near reports whether a fault can have caused the second of two copies.
func (f *performed) near(first, again time.Time) bool {
	within := func(t, from, to time.Time) bool { return t.After(from.Add(-before)) && t.Before(to.Add(after)) }
	switch f.Kind {
	case Kill, Term:
		return within(first, f.Began, f.Began)
	case Stop, StopInPipeline:
		return within(first, f.Began, f.Began) || within(again, f.Ended, f.Ended)
	default:
		return within(first, f.Began, f.Ended)
	}
}

// blame returns the name and the rank of a fault as a cause of duplicates. Rank 0: it cannot cause
// any.
func (f Fault) blame() (name string, rank int) {
	switch {
	case serverOf[f.Kind] != "":
		return "server", 3
	case f.Target == theRows:
		return "locked", 3 // nothing can be recorded about such a row
	case !strings.HasPrefix(f.Target, "relay-"):
		return "", 0
	case f.Kind == Kill:
		return "kill", 4
	case f.Kind == Stop, f.Kind == StopInPipeline:
		return "stop", 4
	case f.Kind == Term:
		return "term", 1
	case f.Kind == Delay, f.Kind == Throttle:
		return "slow", 2
	default:
		return "cut", 2
	}
}
