package relay

import (
	"context"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

const (
	// busyPatience is how long a shard cannot be claimed from before it is asked who has it, and how
	// long it takes until that is asked again. A claim has it for milliseconds.
	busyPatience = 5 * time.Second
	// busyStale is after how long without a claim of ours nothing is known of a shard any more: it may
	// have been free meanwhile.
	busyStale = 5 * time.Second
)

// busyShards remembers which shards others have had whenever they were to be claimed from. It is safe
// for concurrent use.
type busyShards struct {
	mu       sync.Mutex
	shards   map[int]busyShard
	reported seldom
}

type busyShard struct{ since, last, asked time.Time }

// note takes whether a claim has found a shard in other hands, and says since when where it is to be
// asked whose.
func (b *busyShards) note(shard int, busy bool, now time.Time) (since time.Time, ask bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !busy {
		delete(b.shards, shard)
		return since, false
	}
	if b.shards == nil {
		b.shards = map[int]busyShard{}
	}
	seen, there := b.shards[shard]
	if !there || now.Sub(seen.last) > busyStale {
		seen = busyShard{since: now, asked: now}
	}
	seen.last = now
	if ask = now.Sub(seen.asked) >= busyPatience; ask {
		seen.asked = now
	}
	b.shards[shard] = seen
	return seen.since, ask
}

// busySeen asks who keeps a shard from being claimed from for so long, which on some databases ends a
// session that is silent, and reports it.
func (p *Processor) busySeen(ctx context.Context, claim *driver.Claim, batch *driver.Batch) {
	now := time.Now()
	since, ask := p.busy.note(claim.Shard, batch.Busy, now)
	if !ask {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.databaseTimeout())
	defer cancel()
	holder, err := p.store.Holder(ctx, claim.Broker, claim.Shard)
	if err != nil || holder.Session == "" { // the next claim meets the error, too
		return
	}
	if holder.Ended || p.busy.reported.now() {
		p.log.WarnContext(ctx, "shard held by another session", "shard", claim.Shard, "for", now.Sub(since).Round(time.Second), "session", holder.Session,
			"ended", holder.Ended)
	}
}
