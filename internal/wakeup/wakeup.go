// Package wakeup is how a commit tells relays that there are rows to deliver: which shards of which
// broker, in the process itself, or as the text of a notification. All of it is a hint, never more.
package wakeup

import "slices"

// A WakeUp says that rows of a broker were committed, so that the processors that deliver them need
// not find out by polling. It is only a hint: a wrong or lost one delays rows by a poll.
type WakeUp struct {
	// Broker of the rows.
	Broker string
	// Shards of the rows; zero if unknown.
	Shards Set
}

// A Source tells of commits: the capture plugin of a GORM handle, or an outbox.Writer.
type Source interface {
	// OnCommit registers f to be called after each commit that wrote rows, with one wake-up per
	// broker. f runs in the goroutine that commits: it must return quickly, and must not keep the
	// slice. It reports whether a relay in this process delivers these rows. cancel removes f.
	OnCommit(f func(wakeUps []WakeUp) (served bool)) (cancel func())
}

// Merge adds more wake-ups to the given ones, with one entry per broker.
func Merge(wakeUps []WakeUp, more ...WakeUp) []WakeUp {
	for _, w := range more {
		if i := slices.IndexFunc(wakeUps, func(b WakeUp) bool { return b.Broker == w.Broker }); i >= 0 {
			wakeUps[i].Shards = wakeUps[i].Shards.union(w.Shards)
		} else {
			wakeUps = append(wakeUps, w)
		}
	}
	return wakeUps
}
