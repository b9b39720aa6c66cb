package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// countable is how many entries are counted one by one to find the lag, where the server does not
// know it, and countableBytes how many bytes they have together: the server reads them to count them,
// and answers nobody else meanwhile.
const (
	countable      = 100
	countableBytes = 1 << 20
)

// counters are what a consumer has done with a stream since it was made.
type counters struct {
	handled, duplicates, deadLettered, skipped, failed, forwarded, takenOver, lost, trimmed, recreated atomic.Int64
}

// attempt counts the end of an attempt.
func (c *counters) attempt(a *inbox.Attempt) {
	switch {
	case a.Err != nil:
		c.failed.Add(1)
	case a.Outcome == inbox.Duplicate:
		c.duplicates.Add(1)
	case a.Outcome == inbox.DeadLettered:
		c.deadLettered.Add(1)
	case a.Outcome == inbox.Skipped:
		c.skipped.Add(1)
	default:
		c.handled.Add(1)
	}
}

// StreamStats is how far a group is with a stream, and what this consumer has done for it.
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
	// Consumers is the number of names in the group; those of crashed processes are removed after a
	// while.
	Consumers int64
	// LastDelivered is the id of the entry that was delivered to the group last.
	LastDelivered string

	// Claimed is the number of entries that this consumer has claimed, being handled, waiting or
	// not yet acknowledged: at most the prefetch, and one more per worker. Unloaded is the number
	// of further ones, without payload, that wait behind failing messages. Bytes is what the claimed
	// ones have in memory.
	Claimed, Unloaded int
	Bytes             int64
	// What follows counts since the consumer was made. Handled, Duplicates, DeadLettered and
	// Skipped are attempts with that outcome, Failed those with an error.
	Handled, Duplicates, DeadLettered, Skipped, Failed int64
	// Forwarded were forwarded to the dead letters; TakenOver came from other consumers, or were
	// recovered; Lost were taken over by others.
	Forwarded, TakenOver, Lost int64
	// Trimmed are entries that were removed from the stream before they were handled.
	Trimmed int64
	// Recreated is how often the group had to be created again because it had been deleted.
	Recreated int64
}

// Lag is what [Consumer.Stats] says of how far the group is behind, as telemetry.WatchLag takes it.
func (c *Consumer) Lag(ctx context.Context) ([]inbox.Lag, error) {
	all, err := c.Stats(ctx)
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

// Stats asks the server about each stream, one call for each that takes bounded time. It works
// whether the consumer runs or not. Streams that could not be asked have only what this consumer
// knows itself; their errors are joined. Backfills follow the streams, those that the consumer has
// found.
func (c *Consumer) Stats(ctx context.Context) ([]StreamStats, error) {
	all := make([]StreamStats, 0, len(c.streams))
	var failed []error
	for _, st := range c.streams {
		if st.primary != nil && !st.joined.Load() {
			continue
		}
		stats := st.stats()
		if err := c.ask(ctx, st, &stats); err != nil {
			failed = append(failed, explained("read the figures of", st.name, err))
		}
		all = append(all, stats)
	}
	return all, errors.Join(failed...)
}

func (st *stream) stats() StreamStats {
	n := &st.counters
	var held int64
	if counter := st.held.Load(); counter != nil { // it has run
		held = counter.Load()
	}
	return StreamStats{
		Stream: st.name, Claimed: int(st.loaded.Load()), Unloaded: int(st.unloaded.Load()), Bytes: held,
		Handled: n.handled.Load(), Duplicates: n.duplicates.Load(), DeadLettered: n.deadLettered.Load(), Skipped: n.skipped.Load(),
		Failed: n.failed.Load(), Forwarded: n.forwarded.Load(), TakenOver: n.takenOver.Load(), Lost: n.lost.Load(), Trimmed: n.trimmed.Load(),
		Recreated: n.recreated.Load(),
	}
}

func (c *Consumer) ask(ctx context.Context, st *stream, stats *StreamStats) error {
	answer, err := statsScript.run(ctx, c.client, []string{st.name}, c.group, countable, countableBytes)
	if err != nil {
		return err
	}
	list, ok := answer.([]any)
	if !ok || len(list) != 6 {
		return fmt.Errorf("%w: six figures were due", errAnswer)
	}
	lag, ok1 := list[0].(int64)
	pending, ok2 := list[1].(int64)
	oldest, ok3 := list[2].(string)
	consumers, ok4 := list[3].(int64)
	clock, ok5 := list[4].(string)
	last, ok6 := list[5].(string)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 {
		return fmt.Errorf("%w: %v", errAnswer, list)
	}
	stats.Lag, stats.LagKnown, stats.Pending, stats.Consumers, stats.LastDelivered = max(lag, 0), lag >= 0, pending, consumers, last
	if oldest == "" {
		return nil
	}
	id, err := parseID(oldest)
	if err != nil {
		return err
	}
	now, err := strconv.ParseUint(clock, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %q is no time", errAnswer, clock)
	}
	if now > id.ms {
		stats.OldestPending = time.Duration(now-id.ms) * time.Millisecond //nolint:gosec // an age
	}
	return nil
}
