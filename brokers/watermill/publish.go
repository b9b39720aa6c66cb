package watermill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Publish implements [brokers.Broker]. Each message has a call of the publisher of its own; those
// of one key go one after the other, whatever their topics, the others side by side. Nothing
// further is sent to a topic or broker that has proved unavailable. The context travels with the
// messages, for publishers that look at it (message.Message.Context).
//
// When ctx ends, Publish returns at once. A message that is being published then is unconfirmed:
// unavailable after a deadline, retryable after a cancellation. No message of its key is sent by
// any call until the publisher has returned: it is not sent, and says why. When all the calls that
// [WithConcurrency] allows hang in this way, the broker is unavailable.
//
// Errors of the network, of closed connections and of timeouts, where they have no class, are an outage of
// the broker. Any other does not say whose it is, the message's or the topic's: see [brokers.Refused].
// So an outage that a publisher reports in words of its own spends no attempts.
//
// A panic of the publisher is judged in the same way, but that a message which makes one although
// others get through has failed finally.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	p := &publication{Broker: b, msgs: msgs, running: map[int]*flight{}, finished: make(chan struct{})}
	p.plan()
	workers := min(len(p.chains), b.options.concurrency)
	p.working.Store(int64(workers))
	p.inside.Store(int64(workers) + 1)
	defer p.leave()
	for range workers {
		go func() {
			defer p.leave()
			p.work(ctx)
			if p.working.Add(-1) == 0 {
				close(p.finished)
			}
		}()
	}
	if workers > 0 {
		select {
		case <-p.finished:
		case <-ctx.Done():
		}
	}
	return p.end(ctx)
}

// publication is one call of Publish. Its workers may outlive the call, each by the message that it
// is publishing.
type publication struct {
	*Broker
	adapter.Call

	topics   []string // by message
	problems []error  // by message: why it has none
	chains   [][]int
	working  atomic.Int64  // workers
	finished chan struct{} // closed when no worker is left
	inside   atomic.Int64  // those for whom Close waits: the call and its workers

	mu      sync.Mutex // for all that follows
	msgs    []brokers.Message
	running map[int]*flight
	next    int  // the chain that no worker has taken yet
	ended   bool // the call has returned, and with it msgs are the caller's
}

// plan finds the topics. The function that maps destinations to them is the application's, and is called by one
// goroutine.
func (p *publication) plan() {
	p.topics, p.problems = make([]string, len(p.msgs)), make([]error, len(p.msgs))
	for i := range p.msgs {
		p.topics[i], p.problems[i] = p.options.address(&p.msgs[i])
	}
	p.Begin(p.msgs, func(i int) string {
		if p.topics[i] == "" {
			return "none for " + p.msgs[i].Destination
		}
		return p.topics[i]
	})
	p.chains = p.Chains()
}

// work takes chains until none is left.
func (p *publication) work(ctx context.Context) {
	for {
		chain, ok := p.take()
		if !ok {
			return
		}
		for _, i := range chain {
			if p.Admit(ctx, i) {
				p.deliver(ctx, i)
			}
		}
	}
}

func (p *publication) take() (chain []int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.next == len(p.chains) {
		return nil, false
	}
	chain = p.chains[p.next]
	p.next++
	return chain, true
}

// deliver sends one message and records its result.
func (p *publication) deliver(ctx context.Context, i int) {
	key, err := p.keyOf(i)
	if err != nil {
		p.Fail(i, err)
		return
	}
	f, err := p.traffic.enter(ctx, key)
	if err != nil {
		p.turnedAway(i, err)
		return
	}
	defer p.traffic.exit(f)
	if encoded := p.begin(ctx, i, f); encoded != nil {
		p.finish(i, p.hand(ctx, p.topics[i], encoded))
	}
}

var errEnded = errors.New("the call has ended")

// keyOf is the key of a message, or why it cannot be sent.
func (p *publication) keyOf(i int) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return "", errEnded
	}
	return p.msgs[i].OrderingKey, p.problems[i]
}

// turnedAway records the result of a message that the traffic did not let in.
func (p *publication) turnedAway(i int, err error) {
	if class, _ := brokers.Classify(err); class == brokers.ClassUnavailable {
		p.Fail(i, err)
	} else {
		p.Skip(i, err)
	}
}

// begin notes that a message is on its way and returns it as the publisher gets it, nil where
// something has come between.
func (p *publication) begin(ctx context.Context, i int, f *flight) *message.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || !p.Admit(ctx, i) {
		return nil
	}
	p.running[i] = f
	encoded, omitted := p.options.encode(ctx, &p.msgs[i])
	p.Omit(i, omitted)
	return encoded
}

// hand gives a message to the publisher.
func (p *publication) hand(ctx context.Context, topic string, encoded *message.Message) (err error) {
	defer func() {
		// Here a panic would end the process: nothing above this goroutine recovers.
		if r := recover(); r != nil {
			err = brokers.Refused(brokers.ScopeDestination, brokers.Permanent(fmt.Errorf("watermill: publish to %q: the publisher panicked: %v", topic, r)))
		}
	}()
	if err = p.publisher.Publish(topic, encoded); err != nil {
		return p.options.classified(ctx, topic, err)
	}
	return nil
}

// finish records the result of a message that was on its way.
func (p *publication) finish(i int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, i)
	if p.ended {
		return
	}
	if err == nil {
		p.Confirm(i, "")
	} else {
		p.Fail(i, err)
	}
}

// end takes the results: what is on its way is unconfirmed.
func (p *publication) end(ctx context.Context) []brokers.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for i, f := range p.running {
		p.Fail(i, unconfirmed(ctx, p.topics[i], ctx.Err()))
		p.traffic.leave(f)
	}
	return p.Results(ctx)
}

// leave lets Close go on when the call and all its workers have done so.
func (p *publication) leave() {
	if p.inside.Add(-1) == 0 {
		p.gate.Leave()
	}
}
