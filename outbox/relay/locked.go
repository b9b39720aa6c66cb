package relay

import (
	"context"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

const (
	// lockedPatience is how long rows of a shard are locked by other sessions before that is reported:
	// an UPDATE of an operator's is over sooner.
	lockedPatience = 5 * time.Second
	// lockedStale is after how long without a claim of ours nothing is known of a shard any more: others
	// may have claimed meanwhile.
	lockedStale = 10 * time.Minute
)

// lockedRows remembers which shards have rows that other sessions have locked. It is safe for concurrent
// use.
type lockedRows struct {
	mu       sync.Mutex
	shards   map[int]lockedShard
	reported seldom
}

// A lockedShard has had locked rows since then, and had some when it was looked at last.
type lockedShard struct{ since, last time.Time }

// around says whether claims of a shard have to look for locked rows first.
func (l *lockedRows) around(shard int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, there := l.shards[shard]
	return there
}

// note takes what a claim has seen, and says since when there are locked rows where that is to be
// reported.
func (l *lockedRows) note(shard, rows int, now time.Time) (since time.Time, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rows == 0 {
		delete(l.shards, shard)
		return since, false
	}
	if l.shards == nil {
		l.shards = map[int]lockedShard{}
	}
	seen, there := l.shards[shard]
	if since = seen.since; !there || now.Sub(seen.last) > lockedStale {
		since = now
	}
	l.shards[shard] = lockedShard{since, now}
	return since, now.Sub(since) >= lockedPatience && l.reported.now()
}

// lockedSeen reports rows that other sessions keep locked.
func (p *Processor) lockedSeen(ctx context.Context, claim *driver.Claim, batch *driver.Batch) {
	if batch.Busy || claim.Ahead > 0 && batch.Locked == 0 { // nothing was looked at, or not the head, which may have locked rows
		return
	}
	now := time.Now()
	if since, news := p.locked.note(claim.Shard, batch.Locked, now); news {
		p.log.WarnContext(ctx, "rows locked by another session", "shard", claim.Shard, "rows", batch.Locked,
			"for", now.Sub(since).Round(time.Second), "session", batch.LockedBy)
	}
}
