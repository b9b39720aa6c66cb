package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Publish implements [brokers.Broker]. A chunk whose connection breaks, or that gets no answer in
// time, is unavailable: that is no message's fault, and a repeat carries the same message ids. (A
// message that brings this about each time while others pass is for the processor to find: it sends
// another one when the broker is unavailable.) Nothing further is sent to a server or stream once
// it has proved unavailable; what is left of the call is brokers.ErrNotSent.
//
// When ctx is cancelled, other than by its deadline, Publish still waits for the answer to the
// chunk that is in progress, at most for the client's read timeout: so its outcome is known, and
// nothing is delivered twice.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer b.gate.Leave()

	keys := borrowKeys()
	defer keys.reset()
	p := &publication{Broker: b, msgs: msgs, numbers: keys.numbers, inTransactions: b.transactional() && b.transactions.known.Load()}
	p.Begin(msgs, b.options.streams(msgs))
	for _, shards := range b.options.plan(msgs, keys.homes) {
		p.work(ctx, shards, b.options.chunk)
	}
	return p.Results(ctx)
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
	adapter.Call

	msgs    []brokers.Message
	numbers map[string]int // how often each key occurs in the call that is being put together
	// inTransactions says that messages of keys that occur more often are added by transactions.
	inTransactions bool
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
		if !p.Admit(ctx, i) {
			continue
		}
		m := &p.msgs[i]
		if err := p.options.check(m); err != nil {
			p.Fail(i, brokers.Permanent(fmt.Errorf("redisstreams: publish to %q: %w", l.stream, err)))
			continue
		}
		bytes += size(m)
		if len(c.indexes) == chunk || len(c.indexes) > 0 && bytes > maxChunkBytes {
			break
		}
		_, omitted := attributesOf(m)
		p.Omit(i, omitted)
		c.indexes = append(c.indexes, i)
		p.numbers[m.OrderingKey]++
	}
	if len(c.indexes) == 0 {
		return nil
	}
	p.build(ctx, c, p.numbers)
	return c
}

// settle gives the messages of a call their results.
func (p *publication) settle(ctx context.Context, c *call) {
	if c.err != nil {
		for _, i := range c.indexes {
			p.Fail(i, c.err)
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
			p.Fail(i, p.failed(ctx, c.shard.stream, err))
		} else {
			p.confirm(i, id, short)
		}
	}
	if c.transaction != nil {
		p.settleTransaction(ctx, c, short)
	}
	if c.script != nil {
		p.settleScript(ctx, c, short)
	}
}

// confirm records that a message was added.
func (p *publication) confirm(i int, id string, short error) {
	if short != nil {
		p.Fail(i, short)
		return
	}
	p.Confirm(i, id)
}

// settleScript gives the messages of a call's script their results.
func (p *publication) settleScript(ctx context.Context, c *call, short error) {
	answers, err := c.script.Result()
	switch {
	case err != nil:
		p.settleFailed(ctx, c, err)
	case len(answers) != len(c.keyed):
		for _, i := range c.keyed {
			p.Fail(i, brokers.Retryable(fmt.Errorf("redisstreams: publish to %q: %d answers for %d messages",
				c.shard.stream, len(answers), len(c.keyed))))
		}
	default:
		for n, i := range c.keyed {
			switch answer := answers[n]; {
			case answer == "":
				p.Skip(i, p.Held(i))
			case strings.HasPrefix(answer, "!"):
				p.Fail(i, p.refused(c.shard.stream, answer[1:]))
			default:
				p.confirm(i, answer, short)
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
		p.work(ctx, round{{stream: c.shard.stream, waiting: c.keyed}}, 1)
		return
	}
	for _, i := range c.keyed {
		p.Fail(i, err)
	}
}

// failed classifies the error of a command.
func (b *Broker) failed(ctx context.Context, stream string, err error) error {
	if said := redis.Error(nil); errors.As(err, &said) {
		return b.refused(stream, said.Error())
	}
	err = fmt.Errorf("redisstreams: publish to %q: %w", stream, explained(err))
	if errors.Is(ctx.Err(), context.Canceled) {
		// The caller stopped waiting. Whether the messages arrived is unknown, and the broker need
		// not be ill.
		return brokers.Retryable(err)
	}
	// Refused, reset, closed, timed out: whatever it is, it does not name a message.
	return brokers.Unreachable(b.wholeScope(), err)
}

// wholeScope is the scope of an outage of one server: on a cluster it is one node's trouble.
func (b *Broker) wholeScope() brokers.Scope {
	if b.sharded {
		return brokers.ScopeDestination
	}
	return brokers.ScopeBroker
}
