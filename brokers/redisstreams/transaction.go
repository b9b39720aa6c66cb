package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
)

// A transaction adds messages of one stream: XADDs between MULTI and EXEC, for about half of the
// server's time that the script takes. Redis checks each command as it is queued, and all of them again
// at EXEC (memory, rights, replicas, the role of the server); if anything is refused, it executes none.
//
// What is left are errors of a command that is being executed. An XADD has three: the key is no stream,
// the stream has no ids left, the entry is above maxEntryBytes. The first two meet all that follows in
// the transaction as well, and the third none, as several messages are within maxChunkBytes together.
// So no message is added behind a failed one of its key.
type transaction struct {
	begin *redis.StatusCmd
	adds  []*redis.StringCmd // each is answered "QUEUED"
	end   *redis.SliceCmd    // the answers
}

func newTransaction(ctx context.Context, n int) *transaction {
	return &transaction{redis.NewStatusCmd(ctx, "multi"), make([]*redis.StringCmd, 0, n), redis.NewSliceCmd(ctx, "exec")}
}

func (t *transaction) appendCommands(commands []redis.Cmder) []redis.Cmder {
	commands = append(commands, t.begin)
	for _, add := range t.adds {
		commands = append(commands, add)
	}
	return append(commands, t.end)
}

// unknown reports whether the server has refused to begin: it has then executed each XADD by itself.
func (t *transaction) unknown() bool { return refusal(t.begin.Err()) }

// failure says why nothing was added, or is known to be; nil where there are answers. A command that
// was refused before EXEC tells more than EXEC does.
func (t *transaction) failure() error {
	err := t.end.Err()
	if err == nil || t.unknown() {
		return nil
	}
	for _, add := range t.adds {
		if refusal(add.Err()) {
			return add.Err()
		}
	}
	return err
}

// errAnswers is wrapped where what EXEC has answered is not what was asked for.
var errAnswers = errors.New("unexpected answers")

// answer is the id of an entry, or why there is none.
func (t *transaction) answer(n int) (id string, err error) {
	if t.unknown() {
		return t.adds[n].Result()
	}
	answers := t.end.Val()
	if len(answers) != len(t.adds) {
		return "", fmt.Errorf("%w: %d for %d messages", errAnswers, len(answers), len(t.adds))
	}
	switch answer := answers[n].(type) {
	case string:
		return answer, nil
	case error:
		return "", answer
	default:
		return "", fmt.Errorf("%w: %v is no id", errAnswers, answer)
	}
}

// refusal reports whether an error is the server's word.
func refusal(err error) bool {
	if err == nil {
		return false
	}
	said := redis.Error(nil)
	return errors.As(err, &said)
}

// singled is a call by the script for the messages of a transaction of which nothing was executed,
// because the server has refused something that need not be about all of them; nil = there is no such.
func (p *publication) singled(ctx context.Context, c *call) *call {
	if c.transaction == nil || c.err != nil {
		return nil
	}
	err := c.transaction.failure()
	if err == nil {
		return nil
	}
	err = p.failed(ctx, c.shard.stream, err)
	if class, _ := brokers.Classify(err); class != brokers.ClassRetryable || !isServerError(err) {
		return nil
	}
	again := &call{shard: c.shard, indexes: c.keyed}
	c.keyed, c.transaction = nil, nil
	p.inTransactions = false // for what is left of this publication
	clear(p.numbers)
	for _, i := range again.indexes {
		p.numbers[p.msgs[i].OrderingKey]++
	}
	p.build(ctx, again, p.numbers)
	return again
}

// settleTransaction gives the messages of a call's transaction their results.
func (p *publication) settleTransaction(ctx context.Context, c *call, short error) {
	if c.transaction.unknown() {
		p.transactions.known.Store(false)
	}
	if err := c.transaction.failure(); err != nil {
		err = p.failed(ctx, c.shard.stream, err)
		for _, i := range c.keyed {
			p.Fail(i, err)
		}
		return
	}
	for n, i := range c.keyed {
		id, err := c.transaction.answer(n)
		held := p.Held(i)
		switch {
		case err == nil:
			p.confirm(i, id, short)
		case held != nil:
			p.Skip(i, held)
		case errors.Is(err, errAnswers):
			p.Fail(i, brokers.Retryable(fmt.Errorf("redisstreams: publish to %q: %w", c.shard.stream, err)))
		default:
			p.Fail(i, p.failed(ctx, c.shard.stream, err))
		}
	}
}

// transactional reports whether transactions would do. A cluster client sends MULTI and EXEC, which have
// no key, to any node; and only the script knows the server's clock, for trimming by age.
func (b *Broker) transactional() bool { return !b.sharded && b.options.trim != trimAge }

// transactions finds out whether the server knows transactions, and the user may use them: a proxy
// may not know MULTI, and would ignore it and execute what follows. So calls go by the
// script at first, and an empty transaction goes along.
type transactions struct {
	known atomic.Bool
	calls atomic.Uint64 // by the script
}

// question is the empty transaction that goes along with calls, nil = none does. It goes with the
// 1st, 2nd, 4th, 8th ... call, since a refusal may be temporary.
func (t *transactions) question(ctx context.Context, calls []*call) *transaction {
	for _, c := range calls {
		if c.script == nil || t.known.Load() {
			continue
		}
		if n := t.calls.Add(1); n&(n-1) == 0 {
			return newTransaction(ctx, 0)
		}
	}
	return nil
}

func (t *transactions) learn(question *transaction) {
	if question != nil && question.begin.Err() == nil && question.end.Err() == nil && question.end.Val() != nil {
		t.known.Store(true)
	}
}
