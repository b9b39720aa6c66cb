package redisstreams

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
)

var (
	//go:embed xadd.lua
	source string
	script = redis.NewScript(source)
)

// argsPerMessage is a guess at the arguments of an ordinary message: two numbers, and seven fields with their names.
const argsPerMessage = 16

// A call is one chunk of one stream. Messages whose key occurs once in it, and those without a key, are added by XADDs of their
// own: nothing depends on them. The others are added by one run of the script, which stops a key at its first failure. So the
// commands of a call depend on each other in nothing, and may be refused, cut off or repeated one by one.
type call struct {
	lane    *lane
	indexes []int // of all its messages, in order

	plain []int // messages with an XADD of their own, and
	adds  []*redis.StringCmd

	keyed  []int // messages that the script adds
	args   []any // EVALSHA, its digest, 1, the stream, and what the script documents
	script *redis.StringSliceCmd

	wait *redis.IntCmd // the replicas that have it, see WithReplicas
	err  error         // why the call was not sent at all, or never got an answer; classified
}

// build turns the messages of a call into commands. numbers says how often each key occurs in it.
func (p *publication) build(ctx context.Context, c *call, numbers map[string]int) {
	o, next := &p.options, 0
	for _, i := range c.indexes {
		m := &p.msgs[i]
		number := 0
		if times := numbers[m.OrderingKey]; m.OrderingKey == "" || times == 1 {
			if o.trim != trimAge { // only the script knows the server's clock
				c.plain = append(c.plain, i)
				c.adds = append(c.adds, redis.NewStringCmd(ctx, o.xadd(c.lane.stream, m)...))
				continue
			}
		} else {
			if times > 0 { // its first; from here on the key has a number, shorter than itself
				next++
				numbers[m.OrderingKey] = -next
			}
			number = -numbers[m.OrderingKey]
		}
		c.keyed = append(c.keyed, i)
		c.argue(o, number, m, len(c.indexes))
	}
	if len(c.keyed) > 0 {
		c.script = redis.NewStringSliceCmd(ctx, c.args...)
	}
}

// xadd is the command that adds a message by itself.
func (o *options) xadd(stream string, m *brokers.Message) []any {
	args := make([]any, 0, 8+2*(4+len(m.Attributes)))
	args = append(args, "xadd", stream)
	if o.trim != "" {
		args = append(args, o.trim, o.operator, o.limit)
	}
	return appendFields(append(args, "*"), m)
}

// argue appends a message to the script's arguments; key is the number of its key within this call, 0 = none.
func (c *call) argue(o *options, key int, m *brokers.Message, capacity int) {
	if c.args == nil {
		c.args = make([]any, 0, 7+capacity*argsPerMessage)
		c.args = append(c.args, "evalsha", script.Hash(), "1", c.lane.stream, o.trim, o.operator, o.limit)
	}
	count := len(c.args) + 1 // where the number of arguments goes
	c.args = appendFields(append(c.args, key, nil), m)
	c.args[count] = len(c.args) - count - 1
}

func appendFields(args []any, m *brokers.Message) []any {
	args = append(args, dataField, m.Payload)
	m.Fields(func(name, value string) bool {
		args = append(args, name, value)
		return true
	})
	return args
}

// commands are what is still to be sent.
func (c *call) commands() []redis.Cmder {
	commands := make([]redis.Cmder, 0, len(c.adds)+1)
	for _, add := range c.adds {
		commands = append(commands, add)
	}
	if c.script != nil {
		commands = append(commands, c.script)
	}
	return commands
}

// teach prepares a call again whose server does not know the script: the script alone goes again, with its source. A server that
// has not seen it before has done nothing. It is nil when there is nothing to do again.
func (c *call) teach(ctx context.Context) *call {
	if c.script == nil || !redis.HasErrorPrefix(c.script.Err(), "NOSCRIPT") {
		return nil
	}
	c.args[0], c.args[1] = "eval", source
	return &call{lane: c.lane, indexes: c.keyed, keyed: c.keyed, args: c.args, script: redis.NewStringSliceCmd(ctx, c.args...)}
}
