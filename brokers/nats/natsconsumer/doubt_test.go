package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

// steal is a process that dies with the n messages that are delivered next.
func (s *jetServer) steal(t *testing.T, n int) (stolen []jetstream.Msg) {
	t.Helper()
	durable, err := s.js.Consumer(t.Context(), "ORDERING", "billing")
	require.NoError(t, err)
	batch, err := durable.Fetch(n, jetstream.FetchMaxWait(20*time.Second))
	require.NoError(t, err)
	for m := range batch.Messages() {
		stolen = append(stolen, m)
	}
	require.Len(t, stolen, n)
	return stolen
}

// pending are the messages that were delivered and are not confirmed.
func (s *jetServer) pending(t *testing.T) int {
	t.Helper()
	durable, err := s.js.Consumer(t.Context(), "ORDERING", "billing")
	require.NoError(t, err)
	return durable.CachedInfo().NumAckPending
}

// With BackOff a message that was lost twice comes again later than AckWait, which is the first step of
// it: what is behind it waits all the same.
func TestSoleWaitsForBackOff(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{BackOff: []time.Duration{200 * time.Millisecond, 1500 * time.Millisecond}})
	s.publish(t, message("k", "1"))
	s.steal(t, 1)
	s.steal(t, 1)
	s.publish(t, message("k", "2"))
	o := &diary{}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return s.settled(t) }, "both are done")
	require.NoError(t, stop())
	require.Equal(t, []string{"1", "2"}, o.done())
}

// A connection that is closed ends an exclusive consumer's Run, too, while what was lost is waited for and while
// there is no room for anything new.
func TestSoleWithoutConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler inbox.Handler
		lost    bool
		until   func(s *jetServer, c *Consumer) bool
	}{
		"in doubt": {handler, true, func(_ *jetServer, c *Consumer) bool { return c.conn.Stats().OutMsgs > 3 }},
		"full": {
			inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
				return "", inbox.Permanent(errors.New("never"))
			}), false,
			func(s *jetServer, c *Consumer) bool {
				durable, err := s.js.Consumer(context.Background(), "ORDERING", "billing")
				return err == nil && durable.CachedInfo().NumWaiting == 0 && c.Stats().Held == 1
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, jetstream.ConsumerConfig{AckWait: time.Minute})
			s.publish(t, message("k", "1"))
			if test.lost {
				s.steal(t, 1)
			}
			conn, err := nats.Connect(s.url)
			require.NoError(t, err)
			c, err := NewConsumer(conn, "ORDERING", "billing", test.handler,
				hurried(Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 1, MaxOutstandingBytes: 1 << 20}, Exclusive: true}))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			eventually(t, func() bool { return test.until(s, c) }, "it is there")
			conn.Close()
			require.ErrorContains(t, <-ended, "the connection was closed before the consumer had stopped")
		})
	}
}

// While a message that was delivered is not due, however long it takes, next to nothing new is taken from
// the server beside it.
func TestSoleInDoubtTakesNoMore(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{MaxAckPending: -1})
	s.publish(t, message("k", "0"))
	somebody := s.steal(t, 1)
	require.NoError(t, somebody[0].NakWithDelay(time.Hour))
	var some []consumertest.Message
	for n := range 500 {
		some = append(some, message(fmt.Sprint("k", n), strconv.Itoa(n)))
	}
	s.publish(t, some...)
	taken := make(chan int, 1)
	var once sync.Once
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		once.Do(func() { taken <- s.pending(t) })
		return inbox.Handled, nil
	}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 40, MaxOutstandingBytes: 1 << 20}, Exclusive: true}))
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return s.unconfirmed(t) == 1 }, "all others are done")
	require.NoError(t, stop())
	require.Less(t, <-taken, 100, "of 500")
}

// stuck is an exclusive consumer, over a network, whose handler is stuck with the key "stuck" until it is released.
func (s *jetServer) stuck(t *testing.T, proxy *brokertest.Proxy) (c *Consumer, o *diary, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	o = &diary{before: func(_ context.Context, m *inbox.Message) error {
		if m.OrderingKey == "stuck" {
			<-release
		}
		return nil
	}}
	c, err := NewConsumer(s.connect(t, "nats://"+proxy.Addr(t)), "ORDERING", "billing", o,
		hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 4, MaxOutstandingMessages: 8, MaxOutstandingBytes: 1 << 20}, Exclusive: true}))
	require.NoError(t, err)
	return c, o, release
}

// flap is an outage in which messages are lost: four of the key "stuck", at places 1 to 4, are claimed, six
// of the key "k", at places 5 to 10, are published and delivered to a process that dies, and all ten come
// again in another order when the network is there again.
func (s *jetServer) flap(t *testing.T, c *Consumer, proxy *brokertest.Proxy) (want []string) {
	t.Helper()
	for n := range 4 {
		s.publish(t, message("stuck", fmt.Sprint("s", n)))
	}
	eventually(t, func() bool { return c.Stats().Claimed == 4 }, "they are claimed")
	proxy.Reset(t)
	eventually(t, func() bool { return !c.conn.IsConnected() }, "it is cut off")
	for n := range 6 {
		want = append(want, fmt.Sprint("k", n))
		s.publish(t, message("k", want[n]))
	}
	s.giveBack(t, s.steal(t, 10), 7, 8, 1, 2, 3, 4, 9, 10, 5, 6)
	return want
}

// giveBack gives messages back, by their places in the stream, so that they come again at once and in this
// order.
func (s *jetServer) giveBack(t *testing.T, stolen []jetstream.Msg, places ...uint64) {
	t.Helper()
	for _, place := range places {
		at := slices.IndexFunc(stolen, func(m jetstream.Msg) bool {
			meta, err := m.Metadata()
			return err == nil && meta.Sequence.Stream == place
		})
		require.NoError(t, stolen[at].Nak())
		require.NoError(t, s.conn.Flush())
	}
}

// What is claimed and comes once more, as it could not be renewed, is not taken for one of those that were
// lost meanwhile: they are waited for, too.
func TestSoleCountsCopiesOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	proxy := brokertest.StartProxy(t, s.addr)
	c, o, release := s.stuck(t, proxy)
	stop := begin(t, c)
	want := s.flap(t, c, proxy)
	proxy.Heal(t)
	eventually(t, func() bool { return len(o.done()) >= 6 }, "those of k are handled")
	require.Equal(t, want, o.done()[:6])
	close(release)
	eventually(t, func() bool { return s.settled(t) }, "all are confirmed")
	require.NoError(t, stop())
}

// asked is JetStream with a hook at each question for the durable consumer.
type asked struct {
	jetstream.JetStream

	hook func(info *jetstream.ConsumerInfo)
}

func (a *asked) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	if c, err := a.JetStream.Consumer(ctx, stream, name); err == nil {
		a.hook(c.CachedInfo())
	}
	return a.JetStream.Consumer(ctx, stream, name)
}

// What was claimed and is done with while what was lost comes again is not taken for one of the lost.
func TestSoleIsDoneMeanwhile(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	proxy := brokertest.StartProxy(t, s.addr)
	c, o, release := s.stuck(t, proxy)
	var once sync.Once
	c.js = &asked{c.js, func(info *jetstream.ConsumerInfo) {
		const found = 4 + 10 + 4 + 3 // of those that are stuck, some have come again
		if info.Delivered.Consumer < found {
			return
		}
		once.Do(func() {
			close(release)
			assert.Eventually(t, func() bool { return c.Stats().Claimed == 0 && s.pending(t) == 6 }, time.Minute, 5*time.Millisecond, "those that were stuck are done")
		})
	}}
	stop := begin(t, c)
	want := s.flap(t, c, proxy)
	proxy.Heal(t)
	eventually(t, func() bool { return s.settled(t) }, "all are confirmed")
	require.NoError(t, stop())
	require.Equal(t, append([]string{"s0", "s1", "s2", "s3"}, want...), o.done())
}

// What is claimed and was purged is not taken for one of those that were lost.
func TestSolePurged(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	proxy := brokertest.StartProxy(t, s.addr)
	o := &diary{before: func(_ context.Context, m *inbox.Message) error {
		if m.OrderingKey == "held" {
			return inbox.Permanent(errors.New("never"))
		}
		return nil
	}}
	c, err := NewConsumer(s.connect(t, "nats://"+proxy.Addr(t)), "ORDERING", "billing", o, hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	s.publish(t, message("held", "h"))
	stop := begin(t, c)
	eventually(t, func() bool { return c.Stats().Held == 1 }, "it is held")
	proxy.Reset(t)
	eventually(t, func() bool { return !c.conn.IsConnected() }, "it is cut off")
	stream, err := s.js.Stream(t.Context(), "ORDERING")
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context()))
	s.publish(t, message("k", "1"), message("k", "2"))
	s.giveBack(t, s.steal(t, 2), 3, 2)
	proxy.Heal(t)
	eventually(t, func() bool { return s.settled(t) }, "all others are done")
	require.NoError(t, stop())
	require.Equal(t, []string{"1", "2"}, o.done())
}

// While the durable consumer is paused, nothing that was lost can come again: it is waited for.
func TestSolePaused(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: 300 * time.Millisecond})
	s.publish(t, message("k", "1"), message("k", "2"))
	lost := s.steal(t, 2)
	_, err := s.js.PauseConsumer(t.Context(), "ORDERING", "billing", time.Now().Add(time.Second))
	require.NoError(t, err)
	s.giveBack(t, lost, 2, 1)
	o := &diary{}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return s.settled(t) }, "both are done")
	require.NoError(t, stop())
	require.Equal(t, []string{"1", "2"}, o.done())
}

// However much was lost and however little room there is, all of it is found before the first is handled,
// and renewed no more often than it has to be.
func TestSoleFindsMuch(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{MaxAckPending: -1, AckWait: 400 * time.Millisecond})
	const all = 300
	var some []consumertest.Message
	var places []uint64
	for n := range all {
		some = append(some, message("k", strconv.Itoa(n)))
		places = append(places, all-uint64(n))
	}
	s.publish(t, some...)
	s.giveBack(t, s.steal(t, all), places...)
	first := make(chan string, 1)
	conn := s.connect(t, s.url)
	c, err := NewConsumer(conn, "ORDERING", "billing", inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		select {
		case first <- fmt.Sprint(m.ID, " ", conn.Stats().OutMsgs < 200*all):
		default:
		}
		return inbox.Handled, nil
	}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 4, MaxOutstandingBytes: 1 << 20}, Exclusive: true}))
	require.NoError(t, err)
	stop := begin(t, c)
	assert.Equal(t, "0 true", <-first)
	require.NoError(t, stop())
}

// A process that dies while a batch is on its way to it leaves messages behind that were not delivered at
// all. They come first, as if for the first time, though they are behind those that were.
func TestSoleAfterDeathInABatch(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	const all, arrived = 500, 20
	var some []consumertest.Message
	var want []string
	for n := range all {
		want = append(want, strconv.Itoa(n))
		some = append(some, message("k", want[n]))
	}
	s.publish(t, some...)
	dying := s.connect(t, s.url)
	batch := make(chan *nats.Msg, all)
	to := dying.NewInbox()
	subscription, err := dying.ChanSubscribe(to, batch)
	require.NoError(t, err)
	require.NoError(t, subscription.AutoUnsubscribe(arrived)) // in the middle of the batch, as a death does
	require.NoError(t, dying.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.ORDERING.billing", to, fmt.Appendf(nil, `{"batch":%d,"expires":1000000000}`, all)))
	eventually(t, func() bool { return len(batch) == arrived }, "some have arrived")
	dying.Close()
	o := &diary{}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return s.settled(t) }, "all are done")
	require.NoError(t, stop())
	require.Equal(t, want, o.done())
}

// A process that stands still for long while it looks for what was lost goes on looking.
func TestSoleStandsStill(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: 300 * time.Millisecond})
	s.publish(t, message("k", "1"), message("k", "2"))
	s.giveBack(t, s.steal(t, 2), 2, 1)
	o := &diary{}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	var once sync.Once
	c.js = &asked{c.js, func(info *jetstream.ConsumerInfo) {
		if info.Delivered.Consumer == 3 { // one was found
			once.Do(func() { time.Sleep(800 * time.Millisecond) }) // more than it waits for one that does not come
		}
	}}
	stop := begin(t, c)
	eventually(t, func() bool { return s.settled(t) }, "both are done")
	require.NoError(t, stop())
	require.Equal(t, []string{"1", "2"}, o.done())
}

// With an AckWait that is shorter than a fetch waits, what was found does not come again during one.
func TestSoleShortAckWait(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: 500 * time.Millisecond})
	s.publish(t, message("k", "1"))
	s.steal(t, 1)
	received := make(chan uint64, 1)
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		received <- s.delivered(t)
		return inbox.Handled, nil
	}), Config{ConsumerConfig: inbox.ConsumerConfig{Log: silent}, Exclusive: true})
	require.NoError(t, err)
	stop := begin(t, c)
	assert.LessOrEqual(t, <-received, uint64(5), "deliveries of one message")
	require.NoError(t, stop())
}

// delivered is how often messages were delivered.
func (s *jetServer) delivered(t *testing.T) uint64 {
	t.Helper()
	durable, err := s.js.Consumer(context.Background(), "ORDERING", "billing")
	assert.NoError(t, err)
	return durable.CachedInfo().Delivered.Consumer
}
