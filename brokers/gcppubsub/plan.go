package gcppubsub

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/gorm-fanout/fanout/brokers"
)

// A batch is the messages of one request, by index.
type batch struct {
	topic    string
	keyed    bool
	indexes  []int
	messages []*pubsubpb.PubsubMessage
	bytes    int
	// unsure is the failure of an earlier request with these messages that left open whether they
	// arrived; nil = there was none.
	unsure error
}

// A chain is batches that are sent one after the other, as long as they succeed. Messages with a
// key make one chain per key, whatever their topics; of the others, each batch is a chain of its
// own.
type chain []*batch

// A place is where the chain of a message is found: by its key, or by its topic where it has none.
type place struct{ key, topic string }

// plan sorts messages into chains, in the order of their first messages. A message that cannot be
// sent gets its result here.
func (p *publication) plan(ctx context.Context) []chain {
	var (
		chains  []chain
		places  = map[place]int{}
		topics  = map[string]string{}
		problem error
	)
	for i := range p.msgs {
		if !p.Admit(ctx, i) {
			continue
		}
		m := &p.msgs[i]
		topic, known := topics[m.Destination]
		if !known {
			if topic, problem = p.destination(m.Destination); problem == nil {
				topics[m.Destination] = topic
			}
		}
		var message *pubsubpb.PubsubMessage
		var omitted []string
		if problem == nil {
			message, omitted, problem = p.encode(topic, m)
		}
		if problem != nil {
			p.Fail(i, problem)
			problem = nil
			continue
		}
		p.Omit(i, omitted)

		where := place{key: m.OrderingKey}
		if m.OrderingKey == "" {
			where.topic = topic
		}
		at, begun := places[where]
		size := entrySize(message)
		if begun && p.fits(chains[at], topic, size) {
			chains[at][len(chains[at])-1].add(i, message, size)
			continue
		}
		next := &batch{topic: topic, keyed: m.OrderingKey != "", bytes: requestSize(topic)}
		next.add(i, message, size)
		if begun && next.keyed {
			chains[at] = append(chains[at], next)
			continue
		}
		places[where] = len(chains)
		chains = append(chains, chain{next})
	}
	return chains
}

func (p *publication) destination(destination string) (topic string, err error) {
	if destination == "" {
		return "", brokers.Permanent(errors.New("gcppubsub: publish: the destination is empty"))
	}
	if topic, err = p.topicFor(destination); err != nil {
		// The message is fine, and so it will be once the configuration is.
		return "", brokers.Unavailable(brokers.ScopeDestination, fmt.Errorf("gcppubsub: publish to %q: %w", destination, err))
	}
	return topic, nil
}

func (p *publication) encode(topic string, m *brokers.Message) (message *pubsubpb.PubsubMessage, omitted []string, err error) {
	message, omitted, err = encode(topic, m)
	if err != nil {
		return nil, nil, brokers.Permanent(fmt.Errorf("gcppubsub: publish to %q: %w", topic, err))
	}
	return message, omitted, nil
}

// fits is true when a message of size for topic may join the last batch of a chain.
func (p *publication) fits(c chain, topic string, size int) bool {
	last := c[len(c)-1]
	return last.topic == topic && len(last.indexes) < p.options.batchCount && last.bytes+size <= p.options.batchBytes
}

func (b *batch) add(i int, message *pubsubpb.PubsubMessage, size int) {
	b.indexes, b.messages, b.bytes = append(b.indexes, i), append(b.messages, message), b.bytes+size
}

// halves takes a batch apart.
func (b *batch) halves() (left, right *batch) {
	middle := len(b.indexes) / 2
	part := func(from, to int) *batch {
		half := &batch{topic: b.topic, keyed: b.keyed, bytes: requestSize(b.topic), unsure: b.unsure}
		for n := from; n < to; n++ {
			half.add(b.indexes[n], b.messages[n], entrySize(b.messages[n]))
		}
		return half
	}
	return part(0, middle), part(middle, len(b.indexes))
}
