package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/inbox"
)

// diary is a handler that writes down the ids of messages, each when it is done for the first time.
type diary struct {
	before func(ctx context.Context, m *inbox.Message) error // nil for nothing

	mu  sync.Mutex
	ids []string
}

func (o *diary) Handle(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
	if o.before != nil {
		if err := o.before(ctx, m); err != nil {
			return "", err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.ids, m.ID) {
		o.ids = append(o.ids, m.ID)
	}
	return inbox.Handled, nil
}

func (o *diary) done() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ids)
}

// A key that fills the room while it fails, and that grows, keeps no other key out and keeps its order: a
// new message comes before those that were given back, and waits for them.
func TestHotKeyGrows(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	var healed atomic.Bool
	o := &diary{before: func(_ context.Context, m *inbox.Message) error {
		if m.OrderingKey == "hot" && !healed.Load() {
			return inbox.Unavailable(errors.New("out"))
		}
		return nil
	}}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
		Workers: 2, MaxOutstandingMessages: 20, MaxOutstandingBytes: 1 << 20, Retry: inbox.Retry{BaseDelay: 20 * time.Millisecond, MaxDelay: 20 * time.Millisecond},
	}}))
	require.NoError(t, err)
	stop := begin(t, c)
	var want []string
	publish := func() {
		want = append(want, fmt.Sprint("h", len(want)))
		s.publish(t, message("hot", want[len(want)-1]))
	}
	for range 30 {
		publish()
	}
	s.publish(t, message("cold", "cold"))
	eventually(t, func() bool { return c.Stats().Handled == 1 }, "another key gets in")
	for range 30 {
		given := c.Stats().Nacked
		eventually(t, func() bool { return c.Stats().Nacked > given }, "some are given back")
		publish()
	}
	healed.Store(true)
	for range 30 {
		publish()
	}
	eventually(t, func() bool { return s.settled(t) }, "all are confirmed")
	require.NoError(t, stop())
	assert.Equal(t, append([]string{"cold"}, want...), o.done())
}

// makeAnew deletes the stream and its durable consumer, and creates both.
func (s *jetServer) makeAnew(t *testing.T) {
	t.Helper()
	require.NoError(t, s.js.DeleteStream(t.Context(), "ORDERING"))
	_, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.>"}})
	require.NoError(t, err)
	_, err = s.js.CreateConsumer(t.Context(), "ORDERING", jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second})
	require.NoError(t, err)
}

// A stream that is made anew begins to count again: what is in it is no copy of what was claimed before, and
// is not confirmed with that.
func TestStreamMadeAnew(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	begun, letOld, letNew := make(chan struct{}), make(chan struct{}), make(chan struct{})
	o := &diary{before: func(_ context.Context, m *inbox.Message) error {
		if m.ID == "new" {
			<-letNew
			return nil
		}
		close(begun)
		<-letOld
		return nil
	}}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{}))
	require.NoError(t, err)
	stop := begin(t, c)
	s.publish(t, message("k", "old"))
	<-begun
	s.makeAnew(t)
	s.publish(t, message("other", "new"))
	eventually(t, func() bool { return c.Stats().Received == 2 }, "the new one has come")
	close(letOld)
	eventually(t, func() bool { return c.Stats().Claimed == 1 }, "the old one is done")
	require.NoError(t, s.conn.Flush())
	assert.Equal(t, 1, s.unconfirmed(t))
	close(letNew)
	eventually(t, func() bool { return s.settled(t) }, "the new one is confirmed")
	require.NoError(t, stop())
	assert.Equal(t, []string{"old", "new"}, o.done())
}

// A message of the old stream that is given back to make room takes nothing from the message at its place in
// the new one.
func TestOldStreamIsNotGivenBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	fail := make(chan struct{})
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		<-fail
		return "", inbox.Unavailable(errors.New("out"))
	}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
		Workers: 1, MaxOutstandingMessages: 4, MaxOutstandingBytes: 1 << 20, Retry: inbox.Retry{BaseDelay: time.Minute, MaxDelay: time.Minute},
	}}))
	require.NoError(t, err)
	stop := begin(t, c)
	for n := range 4 {
		s.publish(t, message("hot", fmt.Sprint(n)))
	}
	eventually(t, func() bool { return c.Stats().Claimed == 4 }, "there is no room left")
	s.makeAnew(t)
	eventually(t, func() bool { return c.running.Load().epoch.Load() > 0 }, "it knows of the new stream")
	said := s.overhear(t)
	close(fail)
	eventually(t, func() bool { return c.Stats().Nacked > 0 }, "it makes room")
	require.NoError(t, stop())
	assert.NotContains(t, said(), "-NAK")
}

// Nor does a message of the old stream that is held keep the one at its place in the new stream from coming
// again to an exclusive consumer.
func TestSoleStreamMadeAnew(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	o := &diary{before: func(_ context.Context, m *inbox.Message) error {
		if m.OrderingKey == "held" {
			return inbox.Permanent(errors.New("never"))
		}
		return nil
	}}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	s.publish(t, message("held", "h"))
	stop := begin(t, c)
	eventually(t, func() bool { return c.Stats().Held == 1 }, "it is held")
	s.makeAnew(t)
	s.publish(t, message("k", "1"), message("k", "2"))
	eventually(t, func() bool { return len(o.done()) == 2 }, "all that is new is done")
	eventually(t, func() bool { return s.settled(t) }, "and confirmed")
	require.NoError(t, stop())
	assert.Equal(t, []string{"1", "2"}, o.done())
}

// Messages that were lost in an outage come again, and what is new does not overtake them.
func TestCutOffKeepsOrder(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: 300 * time.Millisecond})
	proxy := brokertest.StartProxy(t, s.addr)
	begun := make(chan struct{})
	var once atomic.Bool
	o := &diary{before: func(ctx context.Context, m *inbox.Message) error {
		if m.ID == "0" && once.CompareAndSwap(false, true) {
			close(begun)
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}}
	c, err := NewConsumer(s.connect(t, "nats://"+proxy.Addr(t)), "ORDERING", "billing", o,
		hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Timeout: 500 * time.Millisecond}, Exclusive: true}))
	require.NoError(t, err)
	stop := begin(t, c)
	want := []string{"0", "1", "2"}
	for _, id := range want {
		s.publish(t, message("k", id))
	}
	<-begun
	eventually(t, func() bool { return c.Stats().Claimed == 3 }, "all are claimed")
	proxy.BlackHole(t)
	eventually(t, func() bool { return c.Stats().Claimed == 0 }, "it gives up")
	for n := range 10 {
		want = append(want, fmt.Sprint("new", n))
		s.publish(t, message("k", want[len(want)-1]))
	}
	proxy.Heal(t)
	eventually(t, func() bool { return s.settled(t) }, "all have come again")
	require.NoError(t, stop())
	assert.Equal(t, want, o.done())
}

// An exclusive consumer that takes over from one that was not has the order of a key of which a part had been
// given back: all of it comes again in the order of the stream.
func TestSoleTakesOverHotKey(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	var healed atomic.Bool
	o := &diary{before: func(context.Context, *inbox.Message) error {
		if !healed.Load() {
			return inbox.Unavailable(errors.New("out"))
		}
		return nil
	}}
	consumer := func(exclusive bool) *Consumer {
		c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{
			ConsumerConfig: inbox.ConsumerConfig{
				Workers: 2, MaxOutstandingMessages: 20, MaxOutstandingBytes: 1 << 20, Retry: inbox.Retry{BaseDelay: 20 * time.Millisecond, MaxDelay: 20 * time.Millisecond},
			},
			Exclusive: exclusive, pace: pace{away: 3 * time.Second}, // longer than the successor waits
		}))
		require.NoError(t, err)
		return c
	}
	first := consumer(false)
	stop := begin(t, first)
	var want []string
	for n := range 60 {
		want = append(want, fmt.Sprint("h", n))
		s.publish(t, message("hot", want[n]))
	}
	eventually(t, func() bool { return first.Stats().Nacked >= 10 && first.Stats().Received >= 30 }, "some are given back, and newer ones claimed")
	require.NoError(t, stop())
	healed.Store(true)
	stop = begin(t, consumer(true))
	eventually(t, func() bool { return s.settled(t) }, "all are confirmed")
	require.NoError(t, stop())
	assert.Equal(t, want, o.done())
}
