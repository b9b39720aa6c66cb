package postgres

import (
	"sync"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// simpleShards remembers which shards were simple when they were claimed last: each row of the
// window could be taken as it stood. Those are claimed at once (claim.sql); of others the window is
// read first. It is a guess that costs a round trip where it is wrong.
type simpleShards struct {
	mu sync.Mutex
	// For how many more claims, each of which would have been simple, the guess is not made again.
	distrust map[simpleShard]int
}

type simpleShard struct {
	broker string
	shard  int
}

// simpleAgain is for how many claims a shard is not taken for simple after it was not. Where
// processes take turns on a shard it changes with each claim: then the guess should be wrong once
// in so many claims at most.
const simpleAgain = 8

// likely reports whether a claim may be tried without reading the window first.
func (p *simpleShards) likely(c *driver.Claim) bool {
	if c.Unordered {
		return true
	}
	if c.Window > c.Limit || outbox.Class(c.Shard/outbox.Shards) == outbox.ClassBackfill {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.distrust[simpleShard{c.Broker, c.Shard}] == 0
}

// learn is called after a claim that has seen the shard.
func (p *simpleShards) learn(c *driver.Claim, simple bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.distrust == nil {
		p.distrust = map[simpleShard]int{}
	}
	key := simpleShard{c.Broker, c.Shard}
	switch {
	case !simple:
		p.distrust[key] = simpleAgain
	case p.distrust[key] > 0:
		p.distrust[key]--
	}
}
