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

// plan splits messages into rounds. Nearly always there is one: a key usually has one destination. Where a key goes to another
// stream than before, a new round begins, which is worked on after the one before it, so that the key keeps its order across
// streams. homes is an empty map to work with.
func (o *options) plan(msgs []brokers.Message, homes map[string]*lane) []round {
	if len(msgs) == 0 {
		return nil
	}
	if l := o.single(msgs); l != nil {
		return []round{{l}}
	}
	rounds, lanes := []round{nil}, map[target]*lane{}
	for i := range msgs {
		m := &msgs[i]
		to := o.targetOf(m)
		l := lanes[to]
		home := homes[m.OrderingKey] // its lane in this round
		if home != nil && home != l {
			rounds = append(rounds, nil)
			clear(lanes)
			clear(homes)
			l = nil
		}
		if l == nil {
			l = &lane{stream: to.stream()}
			lanes[to] = l
			rounds[len(rounds)-1] = append(rounds[len(rounds)-1], l)
		}
		if m.OrderingKey != "" {
			homes[m.OrderingKey] = l
		}
		l.waiting = append(l.waiting, i)
	}
	return rounds
}

// single is the lane of messages that all go to one stream, nil = they do not.
func (o *options) single(msgs []brokers.Message) *lane {
	to := o.targetOf(&msgs[0])
	for i := range msgs {
		if o.targetOf(&msgs[i]) != to {
			return nil
		}
	}
	l := &lane{stream: to.stream(), waiting: make([]int, len(msgs))}
	for i := range msgs {
		l.waiting[i] = i
	}
	return l
}
