package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// countable is how many entries are counted one by one to find the lag, where the server does not
// know it, and countableBytes how many bytes they have together: the server reads them to count them,
// and answers no other client meanwhile.
const (
	countable      = 100
	countableBytes = 1 << 20
)

// counters are what a consumer has seen of a stream since it was made.
type counters struct{ takenOver, lost, trimmed, recreated atomic.Int64 }

// StreamStats is how far a group is with a stream, and what this consumer has claimed of it. What has
// become of messages, [Consumer.Stats] counts over all streams.
type StreamStats struct {
	Stream string
	// Lag is the number of entries that were not delivered to the group yet. It is known where
	// LagKnown is set: from Redis 7 on, unless entries were deleted from the middle of the stream,
	// and on every version while nothing was delivered, or what was not are at most 100 entries of
	// at most 1 MiB together.
	Lag      int64
	LagKnown bool
	// Pending is the number of delivered entries that are not acknowledged, OldestPending the age
	// of the oldest of them by the server's clock.
	Pending       int64
	OldestPending time.Duration
	// Members is the number of names in the group; those of crashed processes are removed after a
	// while.
	Members int64
	// LastDelivered is the id of the entry that was delivered to the group last.
	LastDelivered string

	// Claimed is the number of entries that this consumer has claimed, being handled, waiting or
	// not yet acknowledged: at most MaxOutstandingMessages, and one more per worker. Unloaded is the number
	// of further ones, without payload, that wait behind failing messages. Bytes is what the claimed
	// ones have in memory.
	Claimed, Unloaded int
	Bytes             int64
	// What follows counts since the consumer was made. TakenOver came from other members of the
	// group, or were recovered; Lost were taken over by others.
	TakenOver, Lost int64
	// Trimmed are entries that were removed from the stream before they were handled.
	Trimmed int64
	// Recreated is how often the group had to be created again because it had been deleted.
	Recreated int64
}

// Lag is what [Consumer.Streams] says of how far the group is behind, as telemetry.WatchLag takes it.
func (c *Consumer) Lag(ctx context.Context) ([]inbox.Lag, error) {
	all, err := c.Streams(ctx)
	if err != nil {
		return nil, err
	}
	lags := make([]inbox.Lag, len(all))
	for i := range all {
		s := &all[i]
		lags[i] = inbox.Lag{Source: s.Stream, Waiting: inbox.UnknownLag, Pending: s.Pending, Oldest: s.OldestPending}
		if s.LagKnown {
			lags[i].Waiting = s.Lag
		}
	}
	return lags, nil
}

// Streams asks the server about each stream, one call for each that takes bounded time. It works
// whether the consumer runs or not. Streams that could not be asked have only what this consumer
// knows itself; their errors are joined. Backfills follow the streams, those that the consumer has
// found.
func (c *Consumer) Streams(ctx context.Context) ([]StreamStats, error) {
	all := make([]StreamStats, 0, len(c.streams))
	var failed []error
	for _, st := range c.streams {
		if st.primary != nil && !st.joined.Load() {
			continue
		}
		stats := c.claimedOf(st)
		if err := c.ask(ctx, st, &stats); err != nil {
			failed = append(failed, explained("read the figures of", st.name, err))
		}
		all = append(all, stats)
	}
	return all, errors.Join(failed...)
}

// claimedOf is what this consumer knows itself of a stream.
func (c *Consumer) claimedOf(st *stream) StreamStats {
	n := &st.counters
	stats := StreamStats{
		Stream: st.name, TakenOver: n.takenOver.Load(), Lost: n.lost.Load(), Trimmed: n.trimmed.Load(), Recreated: n.recreated.Load(),
	}
	r := c.running.Load()
	if r == nil {
		return stats
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.feeds {
		if f.stream == st {
			stats.Claimed, stats.Unloaded, stats.Bytes = len(f.claims)-f.unloaded, f.unloaded, f.bytes
		}
	}
	return stats
}

func (c *Consumer) ask(ctx context.Context, st *stream, stats *StreamStats) error {
	answer, err := statsScript.run(ctx, c.client, []string{st.name}, c.group, countable, countableBytes)
	if err != nil {
		return err
	}
	list, ok := answer.([]any)
	if !ok || len(list) != 5 {
		return fmt.Errorf("%w: five figures were due", errAnswer)
	}
	lag, ok1 := list[0].(int64)
	pending, ok2 := list[1].(int64)
	oldest, ok3 := list[2].(int64)
	members, ok4 := list[3].(int64)
	last, ok5 := list[4].(string)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return fmt.Errorf("%w: %v", errAnswer, list)
	}
	stats.Lag, stats.LagKnown, stats.Pending, stats.Members, stats.LastDelivered = max(lag, 0), lag >= 0, pending, members, last
	stats.OldestPending = time.Duration(oldest) * time.Millisecond
	return nil
}
