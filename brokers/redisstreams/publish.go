package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
)

// Publish implements [brokers.Broker]. A chunk whose connection breaks, or that gets no answer in
// time, is unavailable: that is nobody's fault, and a repeat carries the same message ids. (A
// message that brings this about each time while others pass is for the processor to find: it sends
// another one when the broker is unavailable.) Nothing further is sent to a server or stream once
// it has proved unavailable; what is left of the call is brokers.ErrNotSent.
//
// When ctx is cancelled, other than by its deadline, Publish still waits for the answer to the
// chunk that is under way, at most for the client's read timeout: so its outcome is known, and
// nothing is delivered twice.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(msgs))
	if !b.gate.Enter() {
		for i := range results {
			results[i].Err = brokers.ErrClosed
		}
		return results
	}
	defer b.gate.Leave()

	keys := borrowKeys()
	defer keys.reset()
	p := &publication{Broker: b, msgs: msgs, results: results, numbers: keys.numbers}
	for _, shards := range b.options.plan(msgs, keys.homes) {
		p.work(ctx, shards, b.options.chunk)
	}
	return results
}

// keyMaps are maps by key, of which each publication needs some.
type keyMaps struct {
	homes   map[string]*shard
	numbers map[string]int
}

var idleKeyMaps = sync.Pool{New: func() any { return &keyMaps{map[string]*shard{}, map[string]int{}} }}

func borrowKeys() *keyMaps { return idleKeyMaps.Get().(*keyMaps) } //nolint:forcetypeassert // made above

// reset empties the maps for the next publication. Large ones are dropped: emptying them takes as
// long as if they were full.
func (k *keyMaps) reset() {
	if len(k.homes) > maxChunk || len(k.numbers) > maxChunk {
		return
	}
	clear(k.homes)
	clear(k.numbers)
	idleKeyMaps.Put(k)
}

// publication is one call of Publish.
type publication struct {
	*Broker

	msgs    []brokers.Message
	results []brokers.Result

	held    map[string]error // keys whose first failure has happened, and what it was; nil while there are none
	numbers map[string]int   // how often each key occurs in the call that is being put together
	out     error            // set when the broker as a whole is out
}

// work sends the messages of shards, a chunk of each at a time, until none is waiting.
func (p *publication) work(ctx context.Context, shards round, chunk int) {
	for {
		var calls []*call
		for _, l := range shards {
			if c := p.next(ctx, l, chunk); c != nil {
				calls = append(calls, c)
			}
		}
		if len(calls) == 0 {
			return
		}
		for _, c := range p.execute(ctx, calls) {
			p.settle(ctx, c)
		}
	}
}

// next takes the next chunk off a shard, or returns nil when nothing is left. Messages that must
// not be sent get their result.
func (p *publication) next(ctx context.Context, l *shard, chunk int) *call {
	if len(l.waiting) == 0 {
		return nil
	}
	c := &call{shard: l, indexes: l.waiting[:0]} // which is where those have stood that it takes
	clear(p.numbers)
	for bytes := 0; len(l.waiting) > 0; l.waiting = l.waiting[1:] {
		i := l.waiting[0]
		m := &p.msgs[i]
		if why := p.obstacle(ctx, l, m); why != nil {
			p.results[i].Err = brokers.NotSentBecause(why)
			continue
		}
		if err := p.options.check(m); err != nil {
			p.fail(i, l, brokers.Permanent(fmt.Errorf("redisstreams: publish to %q: %w", l.stream, err)))
			continue
		}
		_, p.results[i].Omitted = attributesOf(m)
		bytes += len(m.Payload)
		if len(c.indexes) == chunk || len(c.indexes) > 0 && bytes > maxChunkBytes {
			break
		}
		c.indexes = append(c.indexes, i)
		p.numbers[m.OrderingKey]++
	}
	if len(c.indexes) == 0 {
		return nil
	}
	p.build(ctx, c, p.numbers)
	return c
}

// obstacle says why a message must not be sent, nil = nothing is in its way.
func (p *publication) obstacle(ctx context.Context, l *shard, m *brokers.Message) error {
	switch {
	case p.out != nil:
		return p.out
	case l.blocked != nil:
		return l.blocked
	case m.OrderingKey != "" && p.held[m.OrderingKey] != nil:
		return p.held[m.OrderingKey]
	default:
		return ctx.Err()
	}
}

// fail records the failure of a message: its key is held, and an outage is noted in its scope.
func (p *publication) fail(i int, l *shard, err error) {
	p.results[i].Err = err
	if key := p.msgs[i].OrderingKey; key != "" {
		if p.held == nil {
			p.held = map[string]error{}
		}
		p.held[key] = err
	}
	switch class, scope := brokers.Classify(err); {
	case class != brokers.ClassUnavailable:
	case scope == brokers.ScopeBroker:
		p.out = err
	default:
		l.blocked = err
	}
}

// settle gives the messages of a call their results.
func (p *publication) settle(ctx context.Context, c *call) {
	if c.err != nil {
		for _, i := range c.indexes {
			p.fail(i, c.shard, c.err)
		}
		return
	}
	var short error // the messages were added, but are not known to be replicated
	if c.wait != nil {
		if err := p.tooFew(c.wait); err != nil {
			short = p.unreplicated(ctx, c.shard.stream, err)
		}
	}
	for n, i := range c.plain {
		if id, err := c.adds[n].Result(); err != nil {
			p.fail(i, c.shard, p.failed(ctx, c.shard.stream, err))
		} else {
			p.confirm(i, c.shard, id, short)
		}
	}
	if c.script != nil {
		p.settleScript(ctx, c, short)
	}
}

// confirm records that a message was added.
func (p *publication) confirm(i int, l *shard, id string, short error) {
	if short != nil {
		p.fail(i, l, short)
		return
	}
	p.results[i].BrokerMessageID = id
}

// settleScript gives the messages of a call's script their results.
func (p *publication) settleScript(ctx context.Context, c *call, short error) {
	answers, err := c.script.Result()
	switch {
	case err != nil:
		p.settleFailed(ctx, c, err)
	case len(answers) != len(c.keyed):
		for _, i := range c.keyed {
			p.fail(i, c.shard, brokers.Retryable(fmt.Errorf("redisstreams: publish to %q: %d answers for %d messages",
				c.shard.stream, len(answers), len(c.keyed))))
		}
	default:
		for n, i := range c.keyed {
			switch answer := answers[n]; {
			case answer == "":
				p.results[i].Err = brokers.NotSentBecause(p.held[p.msgs[i].OrderingKey])
			case strings.HasPrefix(answer, "!"):
				p.fail(i, c.shard, refused(c.shard.stream, answer[1:]))
			default:
				p.confirm(i, c.shard, answer, short)
			}
		}
	}
}

// settleFailed handles a script that failed as a whole.
func (p *publication) settleFailed(ctx context.Context, c *call, err error) {
	err = p.failed(ctx, c.shard.stream, err)
	class, _ := brokers.Classify(err)
	if class == brokers.ClassRetryable && len(c.keyed) > 1 && isServerError(err) {
		// The server did not like the call, and does not say which message it was (a payload above
		// proto-max-bulk-len, for one). A message of its own kind must not cost its neighbours
		// their attempts: they go one by one. Should the script have added some before it failed,
		// they are delivered twice, and still in order.
		single := &shard{stream: c.shard.stream, waiting: c.keyed, blocked: c.shard.blocked}
		p.work(ctx, round{single}, 1)
		c.shard.blocked = single.blocked
		return
	}
	for _, i := range c.keyed {
		p.fail(i, c.shard, err)
	}
}

// failed classifies the error of a command.
func (b *Broker) failed(ctx context.Context, stream string, err error) error {
	if said := redis.Error(nil); errors.As(err, &said) {
		return refused(stream, said.Error())
	}
	err = fmt.Errorf("redisstreams: publish to %q: %w", stream, explained(err))
	if errors.Is(ctx.Err(), context.Canceled) {
		// The caller stopped waiting. Whether the messages arrived is unknown, and the broker need
		// not be ill.
		return brokers.Retryable(err)
	}
	// Refused, reset, closed, timed out: whatever it is, it does not name a message.
	return brokers.Unavailable(b.wholeScope(), err)
}

// wholeScope is the scope of an outage of one server: on a cluster it is one node's trouble.
func (b *Broker) wholeScope() brokers.Scope {
	if b.sharded {
		return brokers.ScopeDestination
	}
	return brokers.ScopeBroker
}
