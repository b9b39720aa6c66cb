package redisstreams

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
)

var (
	//go:embed xadd.lua
	source string
	//go:embed xadd.sha1
	digestText string
)

// digest is what EVALSHA names the script by: the SHA-1 of its text. A test writes it into a file,
// since a process in which FIPS 140 is enforced may not compute it. A wrong one costs a round trip,
// as of a script that the server does not know.
var digest any = strings.TrimSpace(digestText)

// Arguments of a script call before those of its messages, and of an XADD without those of its
// message.
const (
	scriptArgs  = 7
	addArgs     = 3
	trimmedArgs = addArgs + 3
)

// A call is one chunk of one stream. Messages whose key occurs once in it, and those without a key,
// are added by XADDs of their own: nothing depends on them. The others are added by one transaction,
// all or none of them, or by one run of the script, which stops a key at its first failure. So these
// three depend on each other in nothing, and may be refused, cut off or repeated one by one.
type call struct {
	shard   *shard
	indexes []int // of all its messages, in order

	plain   []int // messages with an XADD of their own, and
	adds    []*redis.StringCmd
	addArgs []any             // room for the arguments of the next one
	room    []redis.StringCmd // what adds point to, and those of the transaction; it never grows

	keyed       []int // messages that the transaction or the script adds
	transaction *transaction
	args        []any // EVALSHA, its digest, 1, the stream, and what the script documents
	script      *redis.StringSliceCmd

	wait *redis.IntCmd // the replicas that have it, see Replicas
	err  error         // why the call was not sent at all, or never got an answer; classified
}

// build turns the messages of a call into commands. numbers says how often each key occurs in it.
func (p *publication) build(ctx context.Context, c *call, numbers map[string]int) {
	p.allot(ctx, c, numbers)
	o, next := &p.options, 0
	var stream any = c.shard.stream
	for _, i := range c.indexes {
		m := &p.msgs[i]
		alone := o.alone(m, numbers)
		if alone || c.transaction != nil {
			args := o.appendAdd(c.addArgs, stream, m)
			c.addArgs = args[len(args):]
			c.room = append(c.room, *redis.NewStringCmd(ctx, slices.Clip(args)...))
			add := &c.room[len(c.room)-1]
			if alone {
				c.plain, c.adds = append(c.plain, i), append(c.adds, add)
			} else {
				c.keyed, c.transaction.adds = append(c.keyed, i), append(c.transaction.adds, add)
			}
			continue
		}
		number := 0
		if times := numbers[m.OrderingKey]; m.OrderingKey != "" && times != 1 {
			if times > 0 { // its first; from here on the key has a number, shorter than itself
				next++
				times = -next
				numbers[m.OrderingKey] = times
			}
			number = -times
		}
		if len(c.args) == 0 {
			c.args = append(c.args, "evalsha", digest, "1", stream, &o.trim, &o.operator, &o.limit)
		}
		c.keyed = append(c.keyed, i)
		c.args = appendFields(append(c.args, number, 2*fields(m)), m)
	}
	if len(c.args) > 0 {
		c.script = redis.NewStringSliceCmd(ctx, c.args...)
	}
}

// alone reports whether a message gets an XADD of its own. Those that are trimmed by age do not:
// only the script knows the server's clock.
func (o *options) alone(m *brokers.Message, numbers map[string]int) bool {
	return o.trim != trimAge && (m.OrderingKey == "" || numbers[m.OrderingKey] == 1)
}

// allot makes the slices of a call as large as they will be, all arguments in one.
func (p *publication) allot(ctx context.Context, c *call, numbers map[string]int) {
	o, plain, commands, forAdds, forScript := &p.options, 0, 0, 0, 0
	for _, i := range c.indexes {
		m := &p.msgs[i]
		alone := o.alone(m, numbers)
		if alone {
			plain++
		}
		if alone || p.inTransactions {
			commands++
			forAdds += trimmedArgs + 2*fields(m)
		} else {
			forScript += 2 + 2*fields(m)
		}
	}
	if keyed := len(c.indexes) - plain; keyed > 0 && p.inTransactions {
		c.transaction = newTransaction(ctx, keyed)
	}
	indexes := make([]int, len(c.indexes))
	c.plain, c.keyed = indexes[:0:plain], indexes[plain:plain]
	c.adds = make([]*redis.StringCmd, 0, plain)
	c.room = make([]redis.StringCmd, 0, commands)
	if forScript > 0 {
		forScript += scriptArgs
	}
	args := make([]any, forScript+forAdds)
	c.args, c.addArgs = args[:0:forScript], args[forScript:forScript]
}

// appendAdd appends the command that adds a message by itself.
func (o *options) appendAdd(args []any, stream any, m *brokers.Message) []any {
	args = append(args, "xadd", stream)
	if o.trim != "" {
		args = append(args, &o.trim, &o.operator, &o.limit)
	}
	return appendFields(append(args, "*"), m)
}

// payload is a message as the argument that its payload is.
type payload brokers.Message

// MarshalBinary implements encoding.BinaryMarshaler.
func (p *payload) MarshalBinary() ([]byte, error) { return p.Payload, nil }

// appendFields appends the payload and what [brokers.Message.Fields] walks through, as pointers
// into the message: in an argument, a string or a slice is a copy on the heap, and a pointer is
// none. The caller's messages outlive the call.
func appendFields(args []any, m *brokers.Message) []any {
	args = append(args, dataField, (*payload)(m), brokers.FieldID, &m.ID, brokers.FieldType, &m.Type)
	if m.OrderingKey != "" {
		args = append(args, brokers.FieldOrderingKey, &m.OrderingKey)
	}
	if m.CorrelationID != "" {
		args = append(args, brokers.FieldCorrelationID, &m.CorrelationID)
	}
	if hasContentType(m) {
		args = append(args, brokers.FieldContentType, &m.ContentType)
	}
	attributes, _ := attributesOf(m)
	for i := range attributes {
		args = append(args, &attributes[i].Name, &attributes[i].Value)
	}
	return args
}

// fields is how many appendFields appends.
func fields(m *brokers.Message) int {
	attributes, _ := attributesOf(m)
	n := 3 + len(attributes)
	if m.OrderingKey != "" {
		n++
	}
	if m.CorrelationID != "" {
		n++
	}
	if hasContentType(m) {
		n++
	}
	return n
}

// size is how many bytes the values of an entry have, and the names of its attributes.
func size(m *brokers.Message) int {
	n := len(m.Payload) + len(m.ID) + len(m.Type) + len(m.OrderingKey) + len(m.CorrelationID) + len(m.ContentType)
	for i := range m.Attributes {
		n += len(m.Attributes[i].Name) + len(m.Attributes[i].Value)
	}
	return n
}

func hasContentType(m *brokers.Message) bool {
	return m.ContentType != "" && m.ContentType != brokers.DefaultContentType
}

// appendCommands appends what is still to be sent.
func (c *call) appendCommands(commands []redis.Cmder) []redis.Cmder {
	for _, add := range c.adds {
		commands = append(commands, add)
	}
	if c.transaction != nil {
		commands = c.transaction.appendCommands(commands)
	}
	if c.script != nil {
		commands = append(commands, c.script)
	}
	return commands
}

// teach prepares a call again whose server does not know the script: the script alone goes again,
// with its source. A server that has not seen it before has done nothing. It is nil when there is
// nothing to do again.
func (c *call) teach(ctx context.Context) *call {
	if c.script == nil || !redis.HasErrorPrefix(c.script.Err(), "NOSCRIPT") {
		return nil
	}
	c.args[0], c.args[1] = "eval", &source
	again := &call{shard: c.shard, indexes: c.keyed, keyed: c.keyed, args: c.args, script: redis.NewStringSliceCmd(ctx, c.args...)}
	c.keyed, c.script = nil, nil
	return again
}
