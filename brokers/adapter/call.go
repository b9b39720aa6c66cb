package adapter

import (
	"context"
	"errors"
	"sync"

	"github.com/gorm-fanout/fanout/brokers"
)

// A Call is the account of one call of Publish: what has become of each message, and which ones must not be
// sent any more. It keeps the rule of [brokers.Broker]: what is behind a failed message of its key is not
// sent, and at an outage what is left of the call, or of the destination, is not either.
//
// An adapter asks [Call.Admit] before it hands a message to its client, says by [Call.Confirm] or [Call.Fail]
// how that has ended, and returns [Call.Results]. The order of messages of one key is its own: it sends them one
// after the other, by [Call.Chains] or [Call.First] and [Call.Next], or such that the later one cannot succeed
// alone.
//
// The zero value is ready for [Call.Begin]. All methods but Begin are safe for concurrent use; after Results
// they do nothing.
type Call struct {
	msgs  []brokers.Message
	place func(i int) string
	next  []int // by message: the next one of its key; 0 = none. Made by First

	mu      sync.Mutex
	results []brokers.Result
	held    map[string]hold  // by key
	out     error            // nothing further is sent
	closed  map[string]error // by place: nothing further is sent there
	refused map[refuser]int  // refusals of which it is unknown whose they are; negative = others were confirmed
	ended   bool
}

// A refuser is what has refused a message: the broker as a whole, or what is at a place.
type refuser struct {
	scope brokers.Scope
	place string
}

// mostRefused messages are refused before one is confirmed, and nothing further is sent there: what
// refuses all of them must not get them all in each call.
const mostRefused = 50

// A hold keeps what is behind a message of a key from being sent.
type hold struct {
	behind int // the index of the message
	why    error
}

// errOpen is the result of a message of which nothing is known yet.
var errOpen = errors.New("adapter: open")

var errEnded = errors.New("the call has ended")

// Closed is what Publish answers after Close.
func Closed(msgs []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(msgs))
	for i := range results {
		results[i].Err = brokers.ErrClosed
	}
	return results
}

// Begin begins the account. place names what an outage of [brokers.ScopeDestination] closes for the message at an
// index, a topic or a routing key say; nil stands for the message's destination.
func (c *Call) Begin(msgs []brokers.Message, place func(i int) string) {
	c.msgs, c.place = msgs, place
	c.results = make([]brokers.Result, len(msgs))
	for i := range c.results {
		c.results[i].Err = errOpen
	}
}

// Chains are the indexes of messages that go one after the other: those of a key, in their order, and each
// message without a key by itself. Chains are in the order of their first messages.
func (c *Call) Chains() [][]int {
	chains, ofKey := make([][]int, 0, len(c.msgs)), map[string]int{}
	for i := range c.msgs {
		key := c.msgs[i].OrderingKey
		if chain, known := ofKey[key]; known && key != "" {
			chains[chain] = append(chains[chain], i)
			continue
		}
		ofKey[key] = len(chains)
		chains = append(chains, []int{i})
	}
	return chains
}

// First are the indexes of messages that wait for no other: the first of each key, and those without one.
// [Call.Next] tells which one follows each of them.
func (c *Call) First() []int {
	first, last := make([]int, 0, len(c.msgs)), map[string]int{}
	next := make([]int, len(c.msgs))
	for i := range c.msgs {
		key := c.msgs[i].OrderingKey
		if before, follows := last[key]; follows {
			next[before] = i
		} else {
			first = append(first, i)
		}
		if key != "" {
			last[key] = i
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = next
	return first
}

// Next is the index of the message that follows another one on its key. It needs a call of [Call.First] before.
func (c *Call) Next(i int) (next int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next[i], c.next[i] > 0
}

// Admit reports whether a message may be sent now. Where it is false, the message has its result, which says why,
// and what is behind it on its key is not sent either.
func (c *Call) Admit(ctx context.Context, i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := c.obstacle(ctx, i)
	if why != nil {
		c.skip(i, why)
	}
	return why == nil
}

// Obstacle says why a message must not be sent now; nil = nothing is in its way.
func (c *Call) Obstacle(ctx context.Context, i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.obstacle(ctx, i)
}

func (c *Call) obstacle(ctx context.Context, i int) error {
	switch {
	case c.ended:
		return errEnded
	case c.out != nil:
		return c.out
	case c.heldBy(i) != nil:
		return c.heldBy(i)
	case len(c.closed) > 0 && c.closed[c.placeOf(i)] != nil:
		return c.closed[c.placeOf(i)]
	default:
		return ctx.Err()
	}
}

func (c *Call) placeOf(i int) string {
	if c.place == nil {
		return c.msgs[i].Destination
	}
	return c.place(i)
}

func (c *Call) heldBy(i int) error {
	if len(c.held) == 0 {
		return nil
	}
	if h, held := c.held[c.msgs[i].OrderingKey]; held && h.behind < i {
		return h.why
	}
	return nil
}

// Held says why a message must not be there before those of its key in front of it; nil = it may. It is for
// adapters that hand several messages of a key to a client which does not send the later ones where an earlier one fails.
func (c *Call) Held(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heldBy(i)
}

// Open reports whether a message has no result yet.
func (c *Call) Open(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended && c.results[i].Err == errOpen //nolint:errorlint // it is never wrapped
}

// Omit notes the flat fields without which a message goes: see [brokers.Result].
func (c *Call) Omit(i int, fields []string) {
	if len(fields) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.results[i].Omitted = fields
	}
}

// Confirm notes that the broker has confirmed a message, and under which id; empty where it gives none.
func (c *Call) Confirm(i int, brokerMessageID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.results[i].BrokerMessageID, c.results[i].Err = brokerMessageID, nil
	}
}

// Fail notes why a message has failed. What is behind it on its key is not sent; where err says that the broker or
// the destination is unavailable, nothing further is sent there. Neither is it where several messages were refused
// without a word whose fault it is ([brokers.Refused]), and none confirmed.
func (c *Call) Fail(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.settle(i, err)
	class, scope := brokers.Classify(err)
	if by, refused := brokers.Refusal(err); refused && c.refusesAll(i, by) {
		scope = by
	} else if class != brokers.ClassUnavailable {
		return
	}
	switch scope {
	case brokers.ScopeBroker:
		c.out = err
	case brokers.ScopeDestination:
		c.close(i, err)
	case brokers.ScopePartition: // which other keys are there is not known
	}
}

// refusesAll counts a refusal, and reports whether it is one of many where nothing was confirmed.
func (c *Call) refusesAll(i int, scope brokers.Scope) bool {
	by := refuser{scope: scope}
	if scope == brokers.ScopeDestination {
		by.place = c.placeOf(i)
	}
	n := c.refused[by]
	if n < 0 || scope == brokers.ScopePartition {
		return false
	}
	if n++; n >= mostRefused {
		for other := range c.results {
			if c.results[other].Err == nil && (scope == brokers.ScopeBroker || c.placeOf(other) == by.place) {
				n = -1
				break
			}
		}
	}
	if c.refused == nil {
		c.refused = map[refuser]int{}
	}
	c.refused[by] = n
	return n >= mostRefused
}

// Settle is Fail for an error that says nothing about the broker or the destination, whatever its class.
func (c *Call) Settle(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.settle(i, err)
	}
}

func (c *Call) settle(i int, err error) {
	c.results[i] = brokers.Result{Err: err}
	c.hold(i, err)
}

// Skip notes why a message is not sent. What is behind it on its key is not either.
func (c *Call) Skip(i int, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.skip(i, why)
	}
}

func (c *Call) skip(i int, why error) {
	if c.ended {
		return
	}
	c.results[i] = brokers.Result{Err: brokers.NotSentBecause(why)}
	c.hold(i, why)
}

// Stop says that nothing further is sent in this call. The first reason stands.
func (c *Call) Stop(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		c.out = why
	}
}

func (c *Call) close(i int, why error) {
	if c.closed == nil {
		c.closed = map[string]error{}
	}
	c.closed[c.placeOf(i)] = why
}

func (c *Call) hold(i int, why error) {
	key := c.msgs[i].OrderingKey
	if key == "" {
		return
	}
	if first, held := c.held[key]; held && first.behind <= i {
		return
	}
	if c.held == nil {
		c.held = map[string]hold{}
	}
	c.held[key] = hold{behind: i, why: why}
}

// Results ends the account and returns one result for each message. Of those that were neither confirmed nor failed
// it says that they were not sent, and why.
func (c *Call) Results(ctx context.Context) []brokers.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.results {
		if c.results[i].Err == errOpen { //nolint:errorlint // it is never wrapped
			why := c.obstacle(ctx, i)
			if why == nil {
				why = errEnded
			}
			c.skip(i, why)
		}
	}
	c.ended = true
	return c.results
}
