package redisconsumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// lendings loses the answer to the first script that lends what is claimed: it was done, and the
// consumer does not know.
type lendings struct{ lost *atomic.Bool }

func (lendings) DialHook(next redis.DialHook) redis.DialHook { return next }
func (lendings) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h lendings) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && len(args) > 9 && fmt.Sprint(args[0])[:4] == "eval" && fmt.Sprint(args[9]) == "-1" && h.lost.CompareAndSwap(false, true) {
			err = errors.New("the answer is lost")
			cmd.SetErr(err)
		}
		return err
	}
}

// What was lent without our knowing is pending for us under another delivery. It is not another's:
// it is claimed again before anything that is younger.
func TestLentWithoutKnowing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(t, "isolated", 0)
	s.readDead(t, 1)
	s.add(t, "key", 1)
	var out, lost atomic.Bool
	out.Store(true)
	through := redis.NewClient(s.Options())
	t.Cleanup(func() { assert.NoError(t, through.Close()) })
	through.AddHook(lendings{&lost})
	l := newLedger()
	r := start(t, through, s.stream, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		if n == 1 && out.Load() {
			return inbox.Unavailable(errors.New("not now"))
		}
		return nil
	}), redisconsumer.Config{ClaimAfter: 2 * time.Second})
	soon(t, "the other one is claimed", func() bool { return r.stats(t).Claimed == 1 })
	s.claimDead(t, s.rows(t)[0].ID, 3)
	soon(t, "it does not know what it has lent", lost.Load)
	out.Store(false)
	s.add(t, "key", 2)
	soon(t, "all handled", func() bool { return l.len() == 3 })
	l.check(t, 3)
}

// looks counts how often pending entries are listed.
type looks struct {
	lendings

	n *atomic.Int64
}

func (h looks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "xpending" {
			h.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

// What a process gets back under its name is looked through once, however much of it waits behind a
// failing message.
func TestRecoveryLooksOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const entries, room = 400, 32
	s.addAll(t, 1, entries)
	s.readDead(t, entries)
	var n atomic.Int64
	through := redis.NewClient(s.Options())
	t.Cleanup(func() { assert.NoError(t, through.Close()) })
	through.AddHook(looks{n: &n})
	var out atomic.Bool
	out.Store(true)
	l := newLedger()
	r := start(t, through, s.stream, l.handler(func(context.Context, *inbox.Message, int) error {
		if out.Load() {
			return inbox.Unavailable(errors.New("not now"))
		}
		return nil
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: room}, Name: "dead", ClaimAfter: time.Minute})
	soon(t, "all are claimed", func() bool { s := r.stats(t); return s.Claimed+s.Unloaded == entries })
	assert.Less(t, n.Load(), int64(entries/3), "each page once, and one more whenever there is room again, not all from the beginning each time")
	out.Store(false)
	soon(t, "all are handled", func() bool { return l.len() == entries })
	l.check(t, entries)
}
