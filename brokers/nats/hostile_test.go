package nats_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/nats"
)

// An id is the same on every broker, and a stream compares ids over all of its subjects: two brokers, or
// two destinations, of one stream must not cost each other their messages.
func TestOneStreamForSeveralDestinations(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stream(t, jetstream.StreamConfig{Name: "ALL", Subjects: []string{"shop.>", "audit.>"}})
	m := numbered("ordering::order", "a", 1)
	for _, prefix := range []string{"shop.", "audit."} {
		assert.Equal(t, []string{""}, classes(open(t, s.url, nats.Settings{SubjectPrefix: prefix}).Publish(t.Context(), []brokers.Message{m})))
	}
	assert.Len(t, s.received(t, "shop.ordering.order", "ordering::order"), 1)
	assert.Len(t, s.received(t, "audit.ordering.order", "ordering::order"), 1, "it counts as published")
}

// That a stream cannot be created, for want of room in the account, costs no message an attempt.
func TestStreamCannotBeCreated(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	account := s.server.GlobalAccount()
	require.NoError(t, account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{
		"": {MaxMemory: -1, MaxStore: -1, MaxStreams: 1, MaxConsumers: -1},
	}))
	s.stream(t, jetstream.StreamConfig{Name: "ONLY", Subjects: []string{"only"}})
	b := open(t, s.url, nats.Settings{CreateDestinations: true})
	results := b.Publish(t.Context(), []brokers.Message{numbered("ordering::order", "a", 1), numbered("only", "b", 2)})
	assert.Equal(t, []string{"unavailable destination", ""}, classes(results), "%v", results)
}

// Messages whose acknowledgments never come do not keep others from being sent, once their calls have ended.
func TestSilentDestination(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stream(t, jetstream.StreamConfig{Name: "WELL", Subjects: []string{"well"}})
	silent, err := s.conn.SubscribeSync("silent") // takes everything and answers nothing
	require.NoError(t, err)
	require.NoError(t, silent.SetPendingLimits(-1, -1))
	require.NoError(t, s.conn.Flush())
	b := open(t, s.url, nats.Settings{MaxPending: 10_000})
	require.NoError(t, b.Ping(t.Context()))
	msgs := make([]brokers.Message, 5000)
	for i := range msgs {
		msgs[i] = numbered("silent", "", i)
	}
	ctx := &passing{Context: t.Context(), done: make(chan struct{})}
	go func() {
		defer ctx.pass()
		assert.Eventually(t, func() bool {
			arrived, _, err := silent.Pending()
			return err == nil && arrived == len(msgs)
		}, patience, time.Millisecond, "all are sent")
	}()
	results := b.Publish(ctx, msgs)
	assert.Equal(t, "unavailable broker", classes(results)[0])
	assert.NotContains(t, classes(results), "not_sent", "the broker may have so many unconfirmed")
	assert.Equal(t, []string{""}, classes(b.Publish(t.Context(), []brokers.Message{numbered("well", "", 1)})))
}

// passing is a context whose deadline passes when the test says so, and not by a clock.
type passing struct {
	context.Context

	done   chan struct{}
	passed atomic.Bool
}

func (p *passing) pass() {
	p.passed.Store(true)
	close(p.done)
}

func (p *passing) Done() <-chan struct{} { return p.done }

func (p *passing) Err() error {
	if p.passed.Load() {
		return context.DeadlineExceeded
	}
	return nil
}
