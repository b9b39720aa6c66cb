package redisstreams

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// atOnce bounds the calls in progress on a cluster, for one Publish.
const atOnce = 16

var errNoAnswer = errors.New("the server gave no answer")

// pipeliner is what clients for one server and for many have in common.
type pipeliner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// execute runs calls of different streams, in any order or at once. Afterwards each has its answers
// or its error. Messages that went a second way are in a call of their own behind the others: those of
// a transaction that the server has discarded, and those of a script that it had to be taught.
func (p *publication) execute(ctx context.Context, calls []*call) []*call {
	for pending := calls; ; {
		p.send(ctx, pending)
		var again []*call
		for _, c := range pending {
			if next := p.singled(ctx, c); next != nil {
				again = append(again, next)
			} else if next := c.teach(ctx); next != nil {
				again = append(again, next)
			}
		}
		if len(again) == 0 {
			return calls
		}
		calls, pending = append(calls, again...), again
	}
}

func (b *Broker) send(ctx context.Context, calls []*call) {
	if !b.sharded {
		b.sendTo(ctx, b.client, calls)
		return
	}
	// One pipeline would be cut up by node, and a slow node would hold up the others' answers.
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, c := range calls {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if b.options.replicas > 0 {
				b.sendToShard(ctx, c)
			} else {
				b.sendTo(ctx, b.client, []*call{c})
			}
		})
	}
	all.Wait()
}

// sendTo sends calls in one pipeline, and so over one connection.
func (b *Broker) sendTo(ctx context.Context, client pipeliner, calls []*call) {
	n := 3 // WAIT, and what asks for transactions
	for _, c := range calls {
		n += len(c.indexes) + 2
	}
	commands := make([]redis.Cmder, 0, n)
	for _, c := range calls {
		commands = c.appendCommands(commands)
	}
	var question *transaction
	if b.transactional() {
		question = b.transactions.question(ctx, calls)
	}
	if question != nil {
		commands = question.appendCommands(commands)
	}
	if b.options.replicas > 0 {
		b.replicate(ctx, client, calls, commands)
	} else {
		pipe(ctx, client, commands)
	}
	b.transactions.learn(question)
}

// pipe sends commands over one connection; each keeps its answer or its error.
func pipe(ctx context.Context, client pipeliner, commands []redis.Cmder) {
	if len(commands) == 1 {
		_ = client.Process(ctx, commands[0])
		return
	}
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.BatchProcess(ctx, commands...) })
	if err == nil {
		err = errNoAnswer
	}
	for _, command := range commands {
		// A refusal that comes while the connection is set up (NOAUTH) reaches the pipeline, but
		// not its commands.
		if command.Err() == nil && unanswered(command) {
			command.SetErr(err)
		}
	}
}

func unanswered(command redis.Cmder) bool {
	switch c := command.(type) {
	case *redis.StringCmd:
		return c.Val() == ""
	case *redis.StringSliceCmd:
		return c.Val() == nil
	case *redis.SliceCmd:
		return c.Val() == nil
	default:
		return false
	}
}
