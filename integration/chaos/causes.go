//go:build unix

package chaos

import (
	"strings"
	"time"
)

// noCause is what a duplicate has that no fault explains.
const noCause = "none"

// beforeCause and afterCause bound how far from a fault its effects lie: a publish under way when it began, and leases, retries and held-up
// connections after it ended.
const (
	beforeCause = 2 * time.Second
	afterCause  = 8 * time.Second
)

// cause names the fault that explains a second copy: the last one that could have kept a relay from writing down, between the first copy
// and the second, that the first had arrived. Faults of processes go before faults of networks.
func (e *evidence) cause(first, again time.Time) string {
	found, rank := noCause, 0
	for _, f := range e.faults {
		if f.Began.After(again.Add(beforeCause)) || f.Ended.Add(afterCause).Before(first) {
			continue
		}
		if name, r := f.blame(); r >= rank {
			found, rank = name, r
		}
	}
	return found
}

// blame says what a fault is as a cause of duplicates; the rank of one that cannot be is negative.
func (f Fault) blame() (name string, rank int) {
	switch {
	case f.Kind == PostgresFast, f.Kind == PostgresImmediate, f.Kind == PostgresKill, f.Kind == RedisTerm, f.Kind == RedisKill:
		return "server", 3
	case !strings.HasPrefix(f.Target, "relay-"):
		return "", -1
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
