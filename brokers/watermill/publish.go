package watermill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/gorm-fanout/fanout/brokers"
)

// maxDoubts is how many messages may fail for an unknown reason, with none confirmed, before the
// rest of a call is not tried.
const maxDoubts = 5

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
// An error that nobody classified is judged by the other results. Errors of the network, of closed
// connections and of timeouts are an outage of the broker. Any other says nothing about who is to
// blame: where another message of the same call was confirmed, it is the message, which is
// retryable; where none was, the broker is unavailable, so that an outage that a publisher reports
// in words of its own spends no attempts. (A message that brings this about each time while others
// pass is for the processor to find.)
//
// A panic of the publisher is judged in the same way, but that a message which makes one beside
// others is refused for good: a publisher that is not set up right must not have all of them
// abandoned.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	p := &publication{
		Broker: b, msgs: msgs, results: make([]brokers.Result, len(msgs)), topics: make([]string, len(msgs)), settled: make([]bool, len(msgs)),
		running: map[int]*flight{}, closedTo: map[string]error{}, finished: make(chan struct{}),
	}
	if !b.gate.Enter() {
		for i := range p.results {
			p.results[i].Err = brokers.ErrClosed
		}
		return p.results
	}
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

	topics   []string // by message
	chains   []chain
	working  atomic.Int64  // workers
	finished chan struct{} // closed when no worker is left
	inside   atomic.Int64  // those for whom Close waits: the call and its workers

	mu       sync.Mutex // for all that follows
	msgs     []brokers.Message
	results  []brokers.Result
	settled  []bool
	running  map[int]*flight
	next     int              // the chain that nobody has taken yet
	reached  bool             // the broker has confirmed or judged something
	doubts   []int            // messages that failed for an unknown reason; their results stand if others get through
	out      error            // set when the broker as a whole is out
	closedTo map[string]error // topics that are out
	ended    bool             // the call has returned, and with it msgs and results are the caller's
}

// settle gives a message its result. It needs mu.
func (p *publication) settle(i int, err error) { p.settled[i], p.results[i].Err = true, err }

// work takes chains until none is left.
func (p *publication) work(ctx context.Context) {
	for {
		c, ok := p.take()
		if !ok {
			return
		}
		for n, i := range c.indexes {
			if why := p.deliver(ctx, c.key, i); why != nil {
				p.skip(c.indexes[n+1:], why)
				break
			}
		}
	}
}

func (p *publication) take() (c chain, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.next == len(p.chains) {
		return chain{}, false
	}
	c = p.chains[p.next]
	p.next++
	return c, true
}

// skip holds the messages that follow a failed one.
func (p *publication) skip(indexes []int, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	for _, i := range indexes {
		p.settle(i, brokers.NotSentBecause(why))
	}
}

// deliver sends one message and records its result. An error says why the later ones of its key
// must not be sent.
func (p *publication) deliver(ctx context.Context, key string, i int) error {
	if why := p.obstacle(ctx, i); why != nil {
		p.skip([]int{i}, why)
		return why
	}
	f, err := p.traffic.enter(ctx, key)
	if err != nil {
		return p.turnedAway(i, err)
	}
	defer p.traffic.exit(f)
	encoded, why := p.begin(ctx, i, f)
	if why != nil {
		p.skip([]int{i}, why)
		return why
	}
	known, err := p.hand(ctx, p.topics[i], encoded)
	return p.finish(ctx, i, err, known)
}

// obstacle says why nothing can be sent to a message's topic, nil = nothing is in the way.
func (p *publication) obstacle(ctx context.Context, i int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocked(ctx, i)
}

var errEnded = errors.New("the call has ended")

// blocked is obstacle for those who have mu.
func (p *publication) blocked(ctx context.Context, i int) error {
	switch {
	case p.ended:
		return errEnded
	case p.out != nil:
		return p.out
	case p.closedTo[p.topics[i]] != nil:
		return p.closedTo[p.topics[i]]
	default:
		return ctx.Err()
	}
}

// turnedAway records the result of a message that the traffic did not let in.
func (p *publication) turnedAway(i int, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return errEnded
	}
	if class, _ := brokers.Classify(err); class == brokers.ClassUnavailable {
		p.out = err
		p.settle(i, err)
	} else {
		p.settle(i, brokers.NotSentBecause(err))
	}
	return err
}

// begin notes that a message is under way and returns it as the publisher gets it, unless something
// has come into its way.
func (p *publication) begin(ctx context.Context, i int, f *flight) (encoded *message.Message, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why = p.blocked(ctx, i); why != nil {
		return nil, why
	}
	p.running[i] = f
	encoded, p.results[i].Omitted = p.options.encode(ctx, &p.msgs[i])
	return encoded, nil
}

// hand gives a message to the publisher. known is false for an error that says nothing about who is
// to blame.
func (p *publication) hand(ctx context.Context, topic string, encoded *message.Message) (known bool, err error) {
	defer func() {
		// Here a panic would end the process: nobody above this goroutine recovers.
		if r := recover(); r != nil {
			known, err = false, brokers.Permanent(fmt.Errorf("watermill: publish to %q: the publisher panicked: %v", topic, r))
		}
	}()
	if err = p.publisher.Publish(topic, encoded); err != nil {
		return p.options.classified(ctx, topic, err)
	}
	return true, nil
}

// finish records the result of a message that was under way, and what it tells about the broker.
func (p *publication) finish(ctx context.Context, i int, err error, known bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, i)
	if p.ended {
		return errEnded
	}
	p.settle(i, err)
	class, scope := brokers.Classify(err)
	switch {
	case !known:
		p.doubts = append(p.doubts, i)
		if !p.reached && len(p.doubts) >= maxDoubts {
			p.out = err
		}
	case class == brokers.ClassUnavailable && scope == brokers.ScopeBroker:
		p.out = err
	case class == brokers.ClassUnavailable:
		p.closedTo[p.topics[i]], p.reached = err, true
	case class != brokers.ClassNotSent && ctx.Err() == nil, err == nil:
		p.reached = true
	}
	return err
}

// end takes the results: what is under way is unconfirmed, what is not settled was not sent.
func (p *publication) end(ctx context.Context) []brokers.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for i, f := range p.running {
		p.settle(i, unconfirmed(ctx, p.topics[i], ctx.Err()))
		p.traffic.leave(f)
	}
	for i := range p.results {
		if !p.settled[i] {
			p.settle(i, brokers.NotSentBecause(ctx.Err()))
		}
	}
	if !p.reached {
		for _, i := range p.doubts {
			p.results[i].Err = brokers.Unavailable(brokers.ScopeBroker, errors.Unwrap(p.results[i].Err))
		}
	}
	return p.results
}

// leave lets Close go on when the call and all its workers have done so.
func (p *publication) leave() {
	if p.inside.Add(-1) == 0 {
		p.gate.Leave()
	}
}
