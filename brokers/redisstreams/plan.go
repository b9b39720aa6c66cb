package redisstreams

import (
	"github.com/gorm-fanout/fanout/brokers"
)

// backfillSuffix is a contract with consumers.
const backfillSuffix = ":backfill"

// A lane holds the messages of one stream that are waiting, by index and in order. blocked is set when the stream is out.
type lane struct {
	stream  string
	waiting []int
	blocked error
}

// A round holds messages whose streams can be worked on side by side: no key is in two of its lanes.
type round []*lane

// streamOf names the stream that a message goes to.
func (o *options) streamOf(m *brokers.Message) string {
	if o.backfill && m.Priority < o.backfillBelow {
		return m.Destination + backfillSuffix
	}
	return m.Destination
}

// plan splits messages into rounds. Nearly always there is one: a key usually has one destination. Where a key goes to another
// stream than before, a new round begins, which is worked on after the one before it, so that the key keeps its order across
// streams.
func (o *options) plan(msgs []brokers.Message) []round {
	var (
		rounds []round
		lanes  map[string]*lane
		homes  map[string]string // key -> its stream in this round
	)
	for i := range msgs {
		m := &msgs[i]
		stream := o.streamOf(m)
		home, known := homes[m.OrderingKey]
		if lanes == nil || (known && home != stream) {
			rounds = append(rounds, nil)
			lanes, homes = map[string]*lane{}, map[string]string{}
			known = false
		}
		if !known && m.OrderingKey != "" {
			homes[m.OrderingKey] = stream
		}
		l := lanes[stream]
		if l == nil {
			l = &lane{stream: stream}
			lanes[stream] = l
			rounds[len(rounds)-1] = append(rounds[len(rounds)-1], l)
		}
		l.waiting = append(l.waiting, i)
	}
	return rounds
}
