package postgres

import (
	"sync"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// plainShards remembers which shards were plain when they were claimed last: nothing in them waited for anything. Those are claimed
// with a statement that can do nothing else (claim_plain.sql). It is a guess that costs a round trip where it is wrong.
type plainShards struct {
	mu sync.Mutex
	// For how many more claims, each of which would have been plain, the guess is not made again.
	distrust map[plainShard]int
}

type plainShard struct {
	broker string
	shard  int
}

// plainAgain is for how many claims a shard is not taken for plain after it was not. Where processes take turns on a shard it
// changes with each claim: then the guess should be wrong once in so many claims at most.
const plainAgain = 8

// likely reports whether a claim may be tried with the small statement.
func (p *plainShards) likely(c *driver.Claim) bool {
	if c.Unordered {
		return true
	}
	if c.Window > c.Limit || outbox.Class(c.Shard/outbox.Shards) == outbox.ClassBackfill {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.distrust[plainShard{c.Broker, c.Shard}] == 0
}

// learn is called after a claim that has seen the shard.
func (p *plainShards) learn(c *driver.Claim, plain bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.distrust == nil {
		p.distrust = map[plainShard]int{}
	}
	key := plainShard{c.Broker, c.Shard}
	switch {
	case !plain:
		p.distrust[key] = plainAgain
	case p.distrust[key] > 0:
		p.distrust[key]--
	}
}
