package natsconsumer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/inbox"
)

// A process that has lost its claims in an outage gives nothing back after it: the messages are another's
// by then, and the server would take them away from that one.
func TestLostIsNotGivenBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	proxy := brokertest.StartProxy(t, s.addr)
	said := s.overhear(t)
	a, err := NewConsumer(s.connect(t, "nats://"+proxy.Addr(t)), "ORDERING", "billing",
		inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 4}}))
	require.NoError(t, err)
	stopA := begin(t, a)
	for n := range 8 {
		s.publish(t, message(fmt.Sprint("k", n), fmt.Sprint(n)))
	}
	eventually(t, func() bool { return a.Stats().Claimed == 8 }, "it has them")
	proxy.BlackHole(t)
	eventually(t, func() bool { return a.Stats().Claimed == 0 && !a.conn.IsConnected() }, "it has given them up")
	o := &diary{}
	b, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{}))
	require.NoError(t, err)
	stopB := begin(t, b)
	eventually(t, func() bool { return len(o.done()) == 8 }, "they are another's")
	proxy.Heal(t)
	eventually(t, func() bool { return a.conn.FlushTimeout(time.Second) == nil }, "it has said all that it had to say")
	require.NoError(t, stopA())
	require.NoError(t, stopB())
	assert.NotContains(t, said(), "-NAK")
}

// overhear returns what consumers have told the server of messages since it was called.
func (s *jetServer) overhear(t *testing.T) (said func() []string) {
	t.Helper()
	sub, err := s.conn.SubscribeSync("$JS.ACK.ORDERING.billing.>")
	require.NoError(t, err)
	require.NoError(t, s.conn.Flush())
	var all []string
	return func() []string {
		require.NoError(t, s.conn.Flush())
		for n, _, err := sub.Pending(); n > 0; n-- {
			require.NoError(t, err)
			m, err := sub.NextMsg(time.Second)
			require.NoError(t, err)
			what, _, _ := strings.Cut(string(m.Data), " ")
			all = append(all, what)
		}
		return all
	}
}

// What a stop keeps for its end stays claimed, though handlers take longer than AckWait: nobody else gets
// it, and so it is taken away from nobody.
func TestStopKeepsWhatItGivesBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second})
	free := make(chan struct{})
	a, err := NewConsumer(s.connect(t, s.url), "ORDERING", "billing", inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		<-free
		return inbox.Handled, nil
	}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 1}}))
	require.NoError(t, err)
	s.publish(t, message("a", "1"), message("b", "2"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	eventually(t, func() bool { return a.Stats().Claimed == 2 }, "both are claimed")
	cancel()
	eventually(t, func() bool { return a.Stats().Claimed == 1 }, "one is kept for the end")
	said := s.overhear(t)
	deliveries := make(chan int, 10)
	b, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		deliveries <- m.Deliveries
		return inbox.Handled, nil
	}), hurried(Config{}))
	require.NoError(t, err)
	stop := begin(t, b)
	eventually(t, func() bool { return len(said()) > 2*(renewals+1) }, "more than AckWait is over")
	assert.Empty(t, deliveries)
	close(free)
	require.NoError(t, <-ended)
	assert.Equal(t, 2, <-deliveries)
	eventually(t, func() bool { return s.settled(t) }, "all are done")
	require.NoError(t, stop())
	assert.Empty(t, deliveries)
}

// What is lost during a stop is not given back at its end either.
func TestLostInAStop(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	proxy := brokertest.StartProxy(t, s.addr)
	free := make(chan struct{})
	var lost atomic.Int64
	a, err := NewConsumer(s.connect(t, "nats://"+proxy.Addr(t)), "ORDERING", "billing",
		inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
			<-ctx.Done()
			lost.Add(1)
			<-free // it takes its time
			return "", ctx.Err()
		}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Workers: 2}}))
	require.NoError(t, err)
	s.publish(t, message("a", "1"), message("b", "2"), message("c", "3"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	eventually(t, func() bool { return a.Stats().Claimed == 3 && a.Stats().Running == 2 }, "all are claimed")
	cancel()
	eventually(t, func() bool { return a.Stats().Claimed == 2 }, "one is kept for the end")
	proxy.Reset(t)
	eventually(t, func() bool { return lost.Load() == 2 && a.Stats().Claimed == 0 }, "all are lost")
	o := &diary{}
	b, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{}))
	require.NoError(t, err)
	stop := begin(t, b)
	eventually(t, func() bool { return len(o.done()) == 3 }, "all are another's")
	said := s.overhear(t)
	proxy.Heal(t)
	eventually(t, a.conn.IsConnected, "it is there again")
	close(free)
	require.NoError(t, <-ended)
	require.NoError(t, stop())
	assert.NotContains(t, said(), "-NAK")
}

const frozenVariable = "FANOUT_TEST_FROZEN"

// frozen is a process that holds its messages as long as it may, and says so.
func frozen(url string) {
	conn, err := nats.Connect(url)
	if err != nil {
		panic(err)
	}
	c, err := NewConsumer(conn, "ORDERING", "billing", inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		fmt.Println("begin", m.ID)
		<-ctx.Done()
		fmt.Println("lost", m.ID)
		return "", ctx.Err()
	}), hurried(Config{}))
	if err != nil {
		panic(err)
	}
	panic(c.Run(context.Background())) // it is killed
}

// A process that was frozen for longer than AckWait has lost its messages to another one, although the
// server answers as soon as it is asked.
func TestFrozen(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it is killed
	cmd.Env = append(os.Environ(), frozenVariable+"="+s.url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	child := bufio.NewScanner(out)
	s.publish(t, message("k", "1"))
	require.True(t, child.Scan())
	require.Equal(t, "begin 1", child.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	o := &diary{}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{}))
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return s.settled(t) }, "it is another's")
	require.NoError(t, stop())
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	require.True(t, child.Scan(), "its handler goes on")
	require.Equal(t, "lost 1", child.Text())
}

// While there is no connection nothing is asked for: with each question that cannot be sent, the client
// would keep a subscription forever.
func TestNoQuestionsWithoutConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	proxy := brokertest.StartProxy(t, s.addr)
	conn, err := nats.Connect("nats://"+proxy.Addr(t), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c, err := NewConsumer(conn, "ORDERING", "billing", handler, hurried(Config{}))
	require.NoError(t, err)
	stop := begin(t, c)
	s.publish(t, message("k", "1"))
	eventually(t, func() bool { return s.settled(t) }, "it runs")
	before := conn.NumSubscriptions()
	proxy.Reset(t)
	eventually(t, func() bool { return !conn.IsConnected() }, "it is cut off")
	r := c.running.Load()
	for range 20 {
		require.Error(t, r.fetch(1, time.Second, func(jetstream.Msg, *jetstream.MsgMetadata) {}))
	}
	require.LessOrEqual(t, conn.NumSubscriptions(), before+1)
	proxy.Heal(t)
	s.publish(t, message("k", "2"))
	eventually(t, func() bool { return s.settled(t) }, "it runs again")
	require.NoError(t, stop())
}

// A durable consumer that bounds what may be asked for is asked for no more.
func TestDurableBoundsRequests(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]jetstream.ConsumerConfig{
		"batch":   {MaxRequestBatch: 10},
		"expires": {MaxRequestExpires: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, config)
			for n := range 20 {
				s.publish(t, message("k", fmt.Sprint(n)))
			}
			c, err := NewConsumer(s.conn, "ORDERING", "billing", handler, hurried(Config{}))
			require.NoError(t, err)
			stop := begin(t, c)
			eventually(t, func() bool { return s.settled(t) }, "all are done")
			require.NoError(t, stop())
		})
	}
}

// A durable consumer may be changed while it is consumed: what is asked for keeps to the new bound, and what
// is claimed is renewed within the new AckWait.
func TestDurableIsChanged(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		if m.OrderingKey == "held" {
			return "", inbox.Permanent(errors.New("never"))
		}
		return inbox.Handled, nil
	}), hurried(Config{}))
	require.NoError(t, err)
	s.publish(t, message("held", "held"))
	stop := begin(t, c)
	eventually(t, func() bool { return c.Stats().Held == 1 }, "it is held")
	_, err = s.js.UpdateConsumer(t.Context(), "ORDERING", jetstream.ConsumerConfig{
		Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxRequestBatch: 10,
	})
	require.NoError(t, err)
	said := s.overhear(t)
	for n := range 3 { // the first one may come to a fetch from before
		s.publish(t, message("k", strconv.Itoa(n)))
		eventually(t, func() bool { return c.Stats().Handled == int64(n)+1 }, "it is handled")
	}
	renewed := func() (n int) {
		for _, what := range said() {
			if what == "+WPI" {
				n++
			}
		}
		return n
	}
	eventually(t, func() bool { return renewed() > renewals }, "it is renewed for longer than AckWait")
	assert.Zero(t, c.Stats().Copies)
	require.NoError(t, stop())
}

// The terms of a durable consumer are within bounds, whatever it says.
func TestTerms(t *testing.T) {
	t.Parallel()
	c, err := NewConsumer(new(nats.Conn), "ORDERING", "billing", handler,
		Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 100, MaxOutstandingBytes: 1, Log: silent}})
	require.NoError(t, err)
	for _, test := range []struct {
		config jetstream.ConsumerConfig
		want   terms
	}{
		{jetstream.ConsumerConfig{AckWait: 30 * time.Second}, terms{30 * time.Second, 30 * time.Second, 25, time.Second}},
		{jetstream.ConsumerConfig{AckWait: time.Second, BackOff: []time.Duration{0, 5 * time.Second}}, terms{leastAckWait, 5 * time.Second, 25, time.Second}},
		{jetstream.ConsumerConfig{MaxRequestBatch: 3, MaxRequestExpires: time.Millisecond}, terms{leastAckWait, leastAckWait, 3, time.Millisecond}},
		{jetstream.ConsumerConfig{AckWait: time.Hour, MaxRequestBatch: 500, MaxRequestExpires: time.Hour}, terms{time.Hour, time.Hour, 25, time.Second}},
	} {
		r := c.newRun(t.Context())
		r.note(&jetstream.ConsumerInfo{Config: test.config})
		assert.Equal(t, test.want, *r.terms())
		r.over()
	}
}

// What a foreign sender puts into headers takes room, too, and so do many that are empty.
func TestHeadersTakeRoom(t *testing.T) {
	t.Parallel()
	many := nats.Header{}
	for n := range 300 {
		many[fmt.Sprint(n)] = []string{""}
	}
	for name, header := range map[string]nats.Header{"Large": {"X": {strings.Repeat("x", 10_000), strings.Repeat("x", 10_000)}}, "Many": many} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHeadersTakeRoom(t, header)
		})
	}
}

// testHeadersTakeRoom does so with headers that take 20 to 24 KB.
func testHeadersTakeRoom(t *testing.T, header nats.Header) {
	t.Helper()
	s := startServer(t, jetstream.ConsumerConfig{})
	for range 8 {
		_, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: "ordering.order", Header: header, Data: message("", "1").Payload})
		require.NoError(t, err)
	}
	begun, free := make(chan struct{}, 8), make(chan struct{})
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		begun <- struct{}{}
		<-free
		return inbox.Handled, nil
	}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 100, MaxOutstandingBytes: 50_000}}))
	require.NoError(t, err)
	stop := begin(t, c)
	<-begun
	<-begun
	eventually(t, func() bool { return s.pending(t) == 8 }, "all are delivered")
	eventually(t, func() bool { return c.Stats().Received >= 2 }, "two are claimed")
	assert.EqualValues(t, 2, c.Stats().Claimed)
	close(free)
	eventually(t, func() bool { return s.settled(t) }, "all are done")
	require.NoError(t, stop())
}
