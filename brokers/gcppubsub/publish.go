package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
)

// Publish implements [brokers.Broker]. Keys go side by side; the messages of one key go in a chain of requests, each sent after
// the one before it was confirmed. A request that Pub/Sub refuses because of one message is taken apart until that message is
// alone. Nothing further is sent to a topic or a server that has proved unavailable; what is left of the call is
// brokers.ErrNotSent.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(msgs))
	if !b.gate.Enter() {
		for i := range results {
			results[i].Err = brokers.ErrClosed
		}
		return results
	}
	defer b.gate.Leave()

	p := &publication{Broker: b, msgs: msgs, results: results, missing: map[string]error{}}
	var chains errgroup.Group
	chains.SetLimit(b.options.concurrency)
	for _, chain := range p.plan() {
		chains.Go(func() error {
			p.work(ctx, chain)
			return nil
		})
	}
	_ = chains.Wait()
	return results
}

// publication is one call of Publish. Goroutines share it; each writes the results of its own messages.
type publication struct {
	*Broker

	msgs    []brokers.Message
	results []brokers.Result

	mu      sync.Mutex
	out     error            // set when the broker as a whole is out
	missing map[string]error // topics that are out
}

// A batch is the messages of one request, by index.
type batch struct {
	topic    string
	keyed    bool
	indexes  []int
	messages []*pubsubpb.PubsubMessage
	bytes    int
}

// A chain is batches that are sent one after the other, as long as they succeed. Messages with a key make one chain per key,
// whatever their topics; of the others, each batch is a chain of its own.
type chain []*batch

// A place is where the chain of a message is found: by its key, or by its topic where it has none.
type place struct{ key, topic string }

// plan sorts messages into chains, in the order of their first messages. A message that cannot be sent gets its result here; the
// later ones of its key are held.
func (p *publication) plan() []chain {
	var (
		chains  []chain
		places  = map[place]int{}
		held    = map[string]error{} // by key
		topics  = map[string]string{}
		problem error
	)
	for i := range p.msgs {
		m := &p.msgs[i]
		if why := held[m.OrderingKey]; why != nil && m.OrderingKey != "" {
			p.results[i].Err = brokers.NotSentBecause(why)
			continue
		}
		topic, known := topics[m.Destination]
		if !known {
			if topic, problem = p.destination(m.Destination); problem == nil {
				topics[m.Destination] = topic
			}
		}
		var message *pubsubpb.PubsubMessage
		if problem == nil {
			message, problem = p.encode(topic, m)
		}
		if problem != nil {
			p.results[i].Err, held[m.OrderingKey], problem = problem, problem, nil
			continue
		}

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

func (p *publication) encode(topic string, m *brokers.Message) (*pubsubpb.PubsubMessage, error) {
	message, err := encode(topic, m)
	if err != nil {
		return nil, brokers.Permanent(fmt.Errorf("gcppubsub: publish to %q: %w", topic, err))
	}
	return message, nil
}

// fits is true when a message of size for topic may join the last batch of a chain.
func (p *publication) fits(c chain, topic string, size int) bool {
	last := c[len(c)-1]
	return last.topic == topic && len(last.indexes) < p.options.batchCount && last.bytes+size <= p.options.batchBytes
}

func (b *batch) add(i int, message *pubsubpb.PubsubMessage, size int) {
	b.indexes, b.messages, b.bytes = append(b.indexes, i), append(b.messages, message), b.bytes+size
}

// work sends the batches of a chain until one fails; those behind it are not sent.
func (p *publication) work(ctx context.Context, c chain) {
	var failed error
	for _, b := range c {
		if failed != nil {
			p.skip(b, failed)
			continue
		}
		failed = p.deliver(ctx, b)
	}
}

func (p *publication) skip(b *batch, why error) {
	for _, i := range b.indexes {
		p.results[i].Err = brokers.NotSentBecause(why)
	}
}

// deliver sends a batch and gives its messages their results. It returns the first failure.
func (p *publication) deliver(ctx context.Context, b *batch) error {
	if why := p.obstacle(ctx, b.topic); why != nil {
		p.skip(b, why)
		return why
	}
	ids, err := p.request(ctx, b)
	if err == nil && len(ids) != len(b.indexes) {
		err = brokers.Retryable(fmt.Errorf("gcppubsub: publish to %q: %d ids for %d messages", b.topic, len(ids), len(b.indexes)))
	}
	if err == nil {
		for n, i := range b.indexes {
			p.results[i].BrokerMessageID = ids[n]
		}
		return nil
	}
	class, _ := brokers.Classify(err)
	if class == brokers.ClassUnavailable {
		p.note(b.topic, err)
	} else if len(b.indexes) > 1 && ctx.Err() == nil {
		return p.split(ctx, b)
	}
	for _, i := range b.indexes {
		p.results[i].Err = err
	}
	return err
}

// split delivers a batch in two halves. Pub/Sub takes or refuses a request as a whole and does not say which message it did not
// like: halving finds it, and spares its neighbours.
func (p *publication) split(ctx context.Context, b *batch) error {
	half := len(b.indexes) / 2
	left := &batch{topic: b.topic, keyed: b.keyed, indexes: b.indexes[:half], messages: b.messages[:half]}
	right := &batch{topic: b.topic, keyed: b.keyed, indexes: b.indexes[half:], messages: b.messages[half:]}
	failed := p.deliver(ctx, left)
	if failed != nil && b.keyed {
		p.skip(right, failed)
		return failed
	}
	if err := p.deliver(ctx, right); failed == nil {
		failed = err
	}
	return failed
}

// obstacle says why nothing can be sent to a topic, nil = nothing is in the way.
func (p *publication) obstacle(ctx context.Context, topic string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil {
		return p.out
	}
	return p.missing[topic]
}

// note remembers an outage, for the requests that are still to come.
func (p *publication) note(topic string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, scope := brokers.Classify(err); scope == brokers.ScopeBroker {
		p.out = err
	} else {
		p.missing[topic] = err
	}
}
