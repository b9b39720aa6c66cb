package postgres

import (
	"sync"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// simpleShards remembers what shards were like when they were claimed last. In a simple one each
// row of the window could be taken as it stood: it is claimed at once (claim.sql); of another one
// the window is read first. Where it had few rows when it had any, as long as the relay keeps up,
// they come with the claim's answer. Both are guesses that cost a round trip where they are wrong.
type simpleShards struct {
	mu     sync.Mutex
	shards map[shardOf]shardGuess
}

type shardOf struct {
	broker string
	shard  int
}

type shardGuess struct {
	distrust int  // for how many more claims, each of which would have been simple, it is not taken for simple
	few      bool // it had few rows
}

// simpleAgain is for how many claims a shard is not taken for simple after it was not. Where
// processes take turns on a shard it changes with each claim: then the guess should be wrong once
// in so many claims at most.
const simpleAgain = 8

// What claim.sql takes for few rows.
const (
	fewRows  = 16
	fewBytes = 32 << 10
)

// guess tells whether a claim may be tried without reading the window first, and whether few rows
// are to be expected.
func (p *simpleShards) guess(c *driver.Claim) (simple, few bool) {
	if c.Unordered {
		return true, false
	}
	if c.Window > c.Limit || c.PerKey > 0 {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	guess := p.shards[shardOf{c.Broker, c.Shard}]
	return guess.distrust == 0, guess.distrust == 0 && guess.few
}

// learn is called after a claim that has seen the shard.
func (p *simpleShards) learn(c *driver.Claim, simple bool, batch *driver.Batch) {
	bytes := 0
	for i := range batch.Messages[:min(len(batch.Messages), fewRows)] {
		bytes += len(batch.Messages[i].Payload) + len(batch.Messages[i].Headers)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shards == nil {
		p.shards = map[shardOf]shardGuess{}
	}
	key := shardOf{c.Broker, c.Shard}
	guess, known := p.shards[key]
	if batch.Seen > 0 || !known { // later on, nothing says nothing about the next burst
		guess.few = batch.Seen <= fewRows && bytes <= fewBytes
	}
	switch {
	case !simple:
		guess.distrust = simpleAgain
	case guess.distrust > 0:
		guess.distrust--
	}
	p.shards[key] = guess
}
