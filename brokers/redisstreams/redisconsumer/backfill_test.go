package redisconsumer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	publisher "github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
)

// publish sends message n of an order with a priority, as a relay whose broker has a backfill does.
func (s *site) publish(t *testing.T, order string, n, priority int) {
	t.Helper()
	m := sealed(t, order, n)
	payload, err := m.MarshalInternal()
	require.NoError(t, err)
	result := publisher.New(s.Client, publisher.Settings{BackfillBelow: new(int)}).Publish(t.Context(), []brokers.Message{{
		Destination: s.stream, ID: m.Metadata.Headers.ID.String(), Type: m.Metadata.Headers.Type, OrderingKey: order, Priority: priority, Payload: payload,
	}})[0]
	require.NoError(t, result.Err)
}

// What is published with a low priority comes to the consumer of the stream, after everything that
// waits in the stream itself.
func TestBackfillComesAfterTheBacklog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const low, normal = 20, 300 // more than is claimed
	for n := range low {
		s.publish(t, fmt.Sprint("low-", n%5), n, -50)
	}
	for n := range normal {
		s.publish(t, fmt.Sprint("order-", n), low+n, 0)
	}
	var mu sync.Mutex
	var begun []int
	l := newLedger()
	r := start(t, s, s.stream, l.handler(func(_ context.Context, m *inbox.Message, n int) error {
		mu.Lock()
		defer mu.Unlock()
		begun = append(begun, n)
		assert.Equal(t, s.stream, m.Source, "one source, so that copies are recognised")
		return nil
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 2}})
	soon(t, "all handled", func() bool { return l.len() == low+normal })
	l.check(t, low+normal)
	mu.Lock()
	for i, n := range begun {
		assert.Equal(t, i >= normal, n < low, "message %d began as number %d", n, i)
	}
	mu.Unlock()
	s.publish(t, "low-0", low+normal, -100)
	soon(t, "a later one, too", func() bool { return l.len() == low+normal+1 })
	all, err := r.Streams(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, s.stream+":backfill", all[1].Stream)
	soon(t, "it is acknowledged", func() bool {
		all, err := r.Streams(t.Context())
		return err == nil && r.Stats().Handled == low+normal+1 && all[1].Pending == 0
	})
	r.stop(t)
	consumers, err := s.XInfoConsumers(t.Context(), s.stream+":backfill", group).Result()
	require.NoError(t, err)
	assert.Empty(t, consumers, "it has left")
}

// A stream whose producer has no backfill gets none from the consumer; nor does one that is read
// without.
func TestNoBackfillIsMade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := newLedger()
	r := start(t, s, s.stream, l.handler(nil), redisconsumer.Config{WithoutBackfill: true})
	s.publish(t, "1", 1, -50)
	s.publish(t, "1", 2, 0)
	soon(t, "the one in the stream is handled", func() bool { return l.len() == 1 })
	all, err := r.Streams(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 1)
	groups, err := s.XInfoGroups(t.Context(), s.stream+":backfill").Result()
	require.NoError(t, err)
	assert.Empty(t, groups)
	r.stop(t)

	require.NoError(t, s.Del(t.Context(), s.stream+":backfill").Err())
	r = start(t, s, s.stream, l.handler(nil))
	s.publish(t, "1", 3, 0)
	soon(t, "it runs", func() bool { return l.len() == 2 })
	n, err := s.Exists(t.Context(), s.stream+":backfill").Result()
	require.NoError(t, err)
	assert.Zero(t, n)
	r.stop(t)
}

// Of a key that is in both streams, one message is handled at a time, and each stream keeps its
// order.
func TestKeyInBothStreams(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := newLedger()
	var mu sync.Mutex
	last := map[bool]int{}
	start(t, s, s.stream, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		mu.Lock()
		defer mu.Unlock()
		assert.Less(t, last[n%3 == 0], n)
		last[n%3 == 0] = n
		return nil
	}))
	for n := 1; n <= 60; n++ {
		priority := 0
		if n%3 == 0 {
			priority = -50
		}
		s.publish(t, "1", n, priority)
	}
	soon(t, "all handled", func() bool { return l.len() == 60 })
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.flaws, "two at once")
}
