package redisstreams

import (
	"context"
	_ "embed"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
)

var (
	//go:embed xadd.lua
	source string
	script = redis.NewScript(source)
)

// atOnce bounds the calls under way on a cluster, for one Publish.
const atOnce = 16

// argsPerMessage is a guess at the arguments of an ordinary message: two numbers, and seven fields with their names.
const argsPerMessage = 16

// A call is one chunk of one stream: one run of the script.
type call struct {
	lane    *lane
	indexes []int // of the messages, in order
	args    []any // EVALSHA, its digest, 1, the stream, and what the script documents
	cmd     *redis.StringSliceCmd
}

// newCall begins a call without messages.
func (b *Broker) newCall(l *lane, capacity int) *call {
	c := &call{lane: l, indexes: make([]int, 0, capacity), args: make([]any, 0, 6+capacity*argsPerMessage)}
	c.args = append(c.args, "evalsha", script.Hash(), "1", l.stream, b.options.trim, b.options.maxLen)
	return c
}

// add appends a message; key is the number of its key within this call, 0 = none.
func (c *call) add(i, key int, m *brokers.Message) {
	c.indexes = append(c.indexes, i)
	count := len(c.args) + 1 // where the number of arguments goes
	c.args = append(c.args, key, nil, dataField, m.Payload)
	m.Fields(func(name, value string) bool {
		c.args = append(c.args, name, value)
		return true
	})
	c.args[count] = len(c.args) - count - 1
}

// execute runs calls of different streams, in any order or at once. Afterwards each has its answer or its error.
func (b *Broker) execute(ctx context.Context, calls []*call) {
	b.send(ctx, calls)
	// A server that has not seen the script before has done nothing: the calls it refused go again, with the source.
	var unknown []*call
	for _, c := range calls {
		if redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			c.args[0], c.args[1] = "eval", source
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		b.send(ctx, unknown)
	}
}

func (b *Broker) send(ctx context.Context, calls []*call) {
	for _, c := range calls {
		c.cmd = redis.NewStringSliceCmd(ctx, c.args...)
	}
	switch {
	case len(calls) == 1:
		_ = b.client.Process(ctx, calls[0].cmd) // the command keeps its error
	case b.sharded:
		// A pipeline would be cut up by node and, after a redirection, sent again in part: one call per stream is plain.
		b.sendApart(ctx, calls)
	default:
		_, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, c := range calls {
				_ = p.Process(ctx, c.cmd)
			}
			return nil
		})
		for _, c := range calls {
			// A refusal that comes while the connection is set up (NOAUTH) reaches the pipeline, but not its commands.
			if c.cmd.Err() == nil && c.cmd.Val() == nil {
				if err == nil {
					err = errNoAnswer
				}
				c.cmd.SetErr(err)
			}
		}
	}
}

var errNoAnswer = errors.New("the server gave no answer")

func (b *Broker) sendApart(ctx context.Context, calls []*call) {
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, c := range calls {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			_ = b.client.Process(ctx, c.cmd)
		})
	}
	all.Wait()
}
