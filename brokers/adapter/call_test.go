package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// fate is what a broker does with a message.
type fate string

const (
	taken      fate = "taken"
	refused    fate = "refused"
	spent      fate = "spent" // an attempt
	fateClosed fate = "destination"
	down       fate = "broker"
	canceled   fate = "canceled" // the caller's context, before it is sent
)

var errOf = map[fate]error{
	refused: brokers.Permanent(errors.New("refused")), spent: brokers.Retryable(errors.New("spent")),
	fateClosed: brokers.Unavailable(brokers.ScopeDestination, errors.New("closed")), down: brokers.Unavailable(brokers.ScopeBroker, errors.New("down")),
}

// client sends messages as their fates say, and notes what it was given.
type client struct {
	call   *adapter.Call
	ctx    context.Context
	cancel func()
	fates  []fate

	mu   sync.Mutex
	sent []int
}

// send sends a message that may be sent, and reports whether it was confirmed.
func (c *client) send(i int) bool {
	if c.fates[i] == canceled {
		c.cancel()
	}
	if !c.call.Admit(c.ctx, i) {
		return false
	}
	c.mu.Lock()
	c.sent = append(c.sent, i)
	c.mu.Unlock()
	if err := errOf[c.fates[i]]; err != nil {
		c.call.Fail(i, err)
		return false
	}
	c.call.Confirm(i, fmt.Sprint("id ", i))
	return true
}

const sideBySide = "chain by chain, side by side"

// ways are those in which adapters send.
var ways = map[string]func(c *client){
	"in order": func(c *client) {
		for i := range c.fates {
			c.send(i)
		}
	},
	sideBySide: func(c *client) {
		var chains sync.WaitGroup
		for _, chain := range c.call.Chains() {
			chains.Go(func() {
				for _, i := range chain {
					c.send(i)
				}
			})
		}
		chains.Wait()
	},
	"chain by chain, until one fails": func(c *client) {
		for _, chain := range c.call.Chains() {
			for _, i := range chain {
				if !c.send(i) {
					break
				}
			}
		}
	},
	"those that wait for none, and then their followers": func(c *client) {
		for ready := c.call.First(); len(ready) > 0; {
			i := ready[0]
			ready = ready[1:]
			if c.send(i) {
				if next, ok := c.call.Next(i); ok {
					ready = append(ready, next)
				}
			}
		}
	},
}

func TestCalls(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.IntRange(0, 12).Draw(t, "messages")
				c := &client{call: new(adapter.Call)}
				msgs := make([]brokers.Message, n)
				for i := range msgs {
					msgs[i].OrderingKey = rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")
					msgs[i].Destination = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "destination")
					c.fates = append(c.fates, rapid.SampledFrom([]fate{taken, taken, taken, taken, refused, spent, fateClosed, down, canceled}).Draw(t, "fate"))
				}
				c.ctx, c.cancel = context.WithCancel(context.Background())
				defer c.cancel()
				c.call.Begin(msgs, nil)
				way(c)
				check(t, c, msgs, c.call.Results(c.ctx))
				if name != sideBySide {
					checkOutages(t, c, msgs)
				}
			})
		})
	}
}

// check compares results with the rules of brokers.Broker.
func check(t require.TestingT, c *client, msgs []brokers.Message, results []brokers.Result) {
	require.Len(t, results, len(msgs))
	sent := map[int]bool{}
	for _, i := range c.sent {
		require.False(t, sent[i], "message %d is sent once", i)
		sent[i] = true
	}
	failed := map[string]int{} // the first of each key that was not confirmed
	excused := func(i int) bool {
		if before, ok := failed[msgs[i].OrderingKey]; ok && before < i && msgs[i].OrderingKey != "" {
			return true
		}
		for j := range msgs {
			switch {
			case c.fates[j] == canceled, sent[j] && c.fates[j] == down, sent[j] && c.fates[j] == fateClosed && msgs[j].Destination == msgs[i].Destination:
				return true
			}
		}
		return false
	}
	for i, result := range results {
		switch {
		case sent[i] && errOf[c.fates[i]] == nil:
			require.NoError(t, result.Err)
			require.Equal(t, fmt.Sprint("id ", i), result.BrokerMessageID)
			if before, ok := failed[msgs[i].OrderingKey]; ok && msgs[i].OrderingKey != "" {
				require.Fail(t, "order", "message %d of key %q is there without message %d", i, msgs[i].OrderingKey, before)
			}
			continue
		case sent[i]:
			require.Equal(t, errOf[c.fates[i]], result.Err)
		default:
			require.ErrorIs(t, result.Err, brokers.ErrNotSent)
			require.NotContains(t, result.Err.Error(), "has ended", "there is a reason")
			require.True(t, excused(i), "message %d is held back by nothing: %v", i, result.Err)
		}
		if _, ok := failed[msgs[i].OrderingKey]; !ok {
			failed[msgs[i].OrderingKey] = i
		}
	}
}

// checkOutages is for messages that are sent one after the other: after an outage nothing further is sent there.
func checkOutages(t require.TestingT, c *client, msgs []brokers.Message) {
	out := map[string]int{}
	for n, i := range c.sent {
		before, closed := out[msgs[i].Destination]
		require.False(t, closed, "message %d is sent although message %d has met an outage", i, before)
		switch c.fates[i] {
		case fateClosed:
			out[msgs[i].Destination] = i
		case down:
			require.Len(t, c.sent, n+1, "message %d has found the broker down", i)
		default:
		}
	}
	for i, fate := range c.fates {
		require.False(t, fate == canceled && slices.Contains(c.sent, i))
	}
}

// Where several messages of a key are in the client's hands, the first that fails holds the others, whichever is
// heard of first.
func TestTheFirstFailureHolds(t *testing.T) {
	t.Parallel()
	var c adapter.Call
	c.Begin([]brokers.Message{{OrderingKey: "k"}, {OrderingKey: "k"}, {OrderingKey: "k"}, {OrderingKey: "l"}}, nil)
	for i := range 3 {
		require.True(t, c.Admit(t.Context(), i))
	}
	c.Fail(2, errOf[spent])
	require.NoError(t, c.Held(1))
	c.Fail(0, errOf[refused])
	assert.Equal(t, errOf[refused], c.Held(1))
	c.Fail(2, errOf[spent])
	assert.Equal(t, errOf[refused], c.Held(1))
	c.Settle(3, brokers.Unavailable(brokers.ScopeBroker, errors.New("no conclusion")))
	require.NoError(t, c.Obstacle(t.Context(), 0))
	results := c.Results(t.Context())
	assert.Equal(t, []error{errOf[refused], errOf[spent]}, []error{results[0].Err, results[2].Err})
	require.EqualError(t, results[1].Err, "brokers: not sent: permanent: refused")
}

// An outage is that of a place, which may be another one than the destination; and what is unsent in one place holds
// its key in all.
func TestPlaces(t *testing.T) {
	t.Parallel()
	var c adapter.Call
	msgs := []brokers.Message{
		{Destination: "x", Priority: 1},
		{Destination: "x", Priority: 2, OrderingKey: "k"},
		{Destination: "x", Priority: 1, OrderingKey: "k"},
		{Destination: "x", Priority: 1, OrderingKey: "l"},
		{Destination: "x", Priority: 2},
		{Destination: "x", Priority: 1, OrderingKey: "k"},
	}
	c.Begin(msgs, func(i int) string { return fmt.Sprint(msgs[i].Destination, msgs[i].Priority) })
	ctx := t.Context()
	require.True(t, c.Admit(ctx, 0))
	c.Fail(0, errOf[fateClosed])
	assert.Equal(t, errOf[fateClosed], c.Obstacle(ctx, 3))
	require.NoError(t, c.Obstacle(ctx, 4))
	require.True(t, c.Admit(ctx, 1))
	c.Omit(1, []string{"traceparent"})
	c.Confirm(1, "")
	require.False(t, c.Admit(ctx, 2), "the other place is out")
	require.False(t, c.Admit(ctx, 3))
	assert.Equal(t, errOf[fateClosed], c.Held(5))
	require.NoError(t, c.Held(1), "it is in front")
	require.True(t, c.Open(4))
	c.Stop(errors.New("enough"))
	c.Stop(errors.New("more"))
	require.EqualError(t, c.Obstacle(ctx, 4), "enough")
	results := c.Results(ctx)
	assert.Equal(t, brokers.Result{Omitted: []string{"traceparent"}}, results[1])
	require.EqualError(t, results[4].Err, "brokers: not sent: enough")
	require.ErrorIs(t, results[5].Err, brokers.ErrNotSent)

	// Whoever is late changes nothing any more.
	c.Confirm(4, "late")
	c.Fail(1, errOf[down])
	c.Skip(1, errOf[down])
	c.Omit(4, []string{"late"})
	assert.False(t, c.Admit(ctx, 4))
	assert.False(t, c.Open(4))
	require.NoError(t, results[1].Err)
	require.EqualError(t, results[4].Err, "brokers: not sent: enough")
}

func TestClosed(t *testing.T) {
	t.Parallel()
	for _, result := range adapter.Closed(make([]brokers.Message, 2)) {
		require.ErrorIs(t, result.Err, brokers.ErrClosed)
	}
}

// What refuses all messages gets a few of a call, and what refuses some of them gets all: whose fault
// a refusal is cannot be told from one.
func TestRefusalOfAll(t *testing.T) {
	t.Parallel()
	const messages = 200
	for name, test := range map[string]struct {
		scope brokers.Scope
		pass  func(i int) bool
		sent  int
	}{
		"an endpoint that refuses all":   {brokers.ScopeBroker, func(int) bool { return false }, 50},
		"one that refuses some":          {brokers.ScopeBroker, func(i int) bool { return i == 5 }, messages},
		"a destination that refuses all": {brokers.ScopeDestination, func(i int) bool { return i%2 == 1 }, 50 + messages/2},
		"one that takes a message":       {brokers.ScopeDestination, func(i int) bool { return i%2 == 1 || i == 4 }, messages},
		"a partition":                    {brokers.ScopePartition, func(int) bool { return false }, messages},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msgs := make([]brokers.Message, messages)
			for i := range msgs {
				msgs[i].Destination = fmt.Sprint(i % 2)
			}
			var call adapter.Call
			call.Begin(msgs, nil)
			sent := 0
			for i := range msgs {
				if !call.Admit(t.Context(), i) {
					continue
				}
				sent++
				if test.pass(i) {
					call.Confirm(i, "")
				} else {
					call.Fail(i, brokers.Refused(test.scope, brokers.Permanent(errors.New("no"))))
				}
			}
			assert.Equal(t, test.sent, sent)
		})
	}
}
