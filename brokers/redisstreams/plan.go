package redisstreams

import (
	"github.com/gorm-fanout/fanout/brokers"
)

// backfillSuffix is a contract with consumers.
const backfillSuffix = ":backfill"

// A shard holds the messages of one stream that are waiting, by index and in order.
type shard struct {
	stream  string
	waiting []int
}

// A round holds messages whose streams can be worked on side by side: no key is in two of its
// shards.
type round []*shard

// A target is where a message goes.
type target struct {
	destination string
	backfill    bool
}

func (o *options) targetOf(m *brokers.Message) target {
	return target{m.Destination, o.backfill && m.Priority < o.backfillBelow}
}

// stream is the name of the target's stream.
func (t target) stream() string {
	if t.backfill {
		return t.destination + backfillSuffix
	}
	return t.destination
}

// streams tells the streams of messages; nil where they are the destinations.
func (o *options) streams(msgs []brokers.Message) func(i int) string {
	if !o.backfill {
		return nil
	}
	return func(i int) string { return o.targetOf(&msgs[i]).stream() }
}

// plan splits messages into rounds. Nearly always there is one: a key usually has one destination.
// Where a key goes to another stream than before, a new round begins, which is worked on after the
// one before it, so that the key keeps its order across streams. homes is an empty map to work
// with.
func (o *options) plan(msgs []brokers.Message, homes map[string]*shard) []round {
	if len(msgs) == 0 {
		return nil
	}
	if l := o.single(msgs); l != nil {
		return []round{{l}}
	}
	rounds, shards := []round{nil}, map[target]*shard{}
	for i := range msgs {
		m := &msgs[i]
		to := o.targetOf(m)
		l := shards[to]
		home := homes[m.OrderingKey] // its shard in this round
		if home != nil && home != l {
			rounds = append(rounds, nil)
			clear(shards)
			clear(homes)
			l = nil
		}
		if l == nil {
			l = &shard{stream: to.stream()}
			shards[to] = l
			rounds[len(rounds)-1] = append(rounds[len(rounds)-1], l)
		}
		if m.OrderingKey != "" {
			homes[m.OrderingKey] = l
		}
		l.waiting = append(l.waiting, i)
	}
	return rounds
}

// single is the shard of messages that all go to one stream, nil = they do not.
func (o *options) single(msgs []brokers.Message) *shard {
	to := o.targetOf(&msgs[0])
	for i := range msgs {
		if o.targetOf(&msgs[i]) != to {
			return nil
		}
	}
	l := &shard{stream: to.stream(), waiting: make([]int, len(msgs))}
	for i := range msgs {
		l.waiting[i] = i
	}
	return l
}
