package natsconsumer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

// A process that has lost its claims in an outage gives nothing back after it: the messages are another's
// by then, and the server would take them away from that one.
func TestLostIsNotGivenBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: 3 * time.Second})
	proxy := toxic.Start(t, s.addr)
	var mu sync.Mutex
	var said []string
	_, err := s.conn.Subscribe("$JS.ACK.ORDERING.billing.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, string(m.Data))
	})
	require.NoError(t, err)
	a, err := NewConsumer(s.connect(t, "nats://"+proxy.Addr(t)), "ORDERING", "billing",
		inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}), silent, hurried, WithWorkers(4))
	require.NoError(t, err)
	stopA := begin(t, a)
	for n := range 8 {
		s.publish(t, message(fmt.Sprint("k", n), fmt.Sprint(n)))
	}
	eventually(t, func() bool { return a.Stats().Claimed == 8 }, "it has them")
	proxy.BlackHole(t)
	eventually(t, func() bool { return a.Stats().Claimed == 0 && !a.conn.IsConnected() }, "it has given them up")
	o := &diary{}
	b, err := NewConsumer(s.conn, "ORDERING", "billing", o, silent, hurried)
	require.NoError(t, err)
	stopB := begin(t, b)
	eventually(t, func() bool { return len(o.done()) == 8 }, "they are another's")
	proxy.Heal(t)
	eventually(t, func() bool { return a.conn.FlushTimeout(time.Second) == nil }, "it has said all that it had to say")
	require.NoError(t, s.conn.Flush())
	require.NoError(t, stopA())
	require.NoError(t, stopB())
	mu.Lock()
	defer mu.Unlock()
	assert.False(t, slices.ContainsFunc(said, func(what string) bool { return strings.HasPrefix(what, "-NAK") }), "%q", said)
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
	}), silent, hurried)
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
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, silent, hurried)
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "it is another's")
	require.NoError(t, stop())
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	require.True(t, child.Scan(), "its handler goes on")
	require.Equal(t, "lost 1", child.Text())
}

// While there is no connection nothing is asked for: with each question that cannot be sent, the client
// would keep a subscription for ever.
func TestNoQuestionsWithoutConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	proxy := toxic.Start(t, s.addr)
	conn, err := nats.Connect("nats://"+proxy.Addr(t), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c, err := NewConsumer(conn, "ORDERING", "billing", handler, silent, hurried)
	require.NoError(t, err)
	stop := begin(t, c)
	s.publish(t, message("k", "1"))
	eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "it runs")
	before := conn.NumSubscriptions()
	proxy.Reset(t)
	eventually(t, func() bool { return !conn.IsConnected() }, "it is cut off")
	r := c.running.Load()
	for range 20 {
		require.Error(t, r.fetch(1, func(jetstream.Msg) {}))
	}
	require.LessOrEqual(t, conn.NumSubscriptions(), before+1)
	proxy.Heal(t)
	s.publish(t, message("k", "2"))
	eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "it runs again")
	require.NoError(t, stop())
}

// A durable consumer that bounds what may be asked for is asked for no more.
func TestDurableBoundsRequests(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]jetstream.ConsumerConfig{
		"batch":   {MaxRequestBatch: 10},
		"expires": {MaxRequestExpires: 500 * time.Millisecond},
		"bytes":   {MaxRequestMaxBytes: 1 << 10},
		"waiting": {MaxWaiting: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, config)
			for n := range 20 {
				s.publish(t, message("k", fmt.Sprint(n)))
			}
			c, err := NewConsumer(s.conn, "ORDERING", "billing", handler, silent, hurried)
			require.NoError(t, err)
			stop := begin(t, c)
			eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "all are done")
			require.NoError(t, stop())
		})
	}
}

// What a foreign sender puts into headers takes room, too.
func TestHeadersTakeRoom(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	for range 8 {
		header := nats.Header{"X": {strings.Repeat("x", 10_000), strings.Repeat("x", 10_000)}}
		_, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: "ordering.order", Header: header, Data: message("", "1").Payload})
		require.NoError(t, err)
	}
	begun, free := make(chan struct{}, 8), make(chan struct{})
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		begun <- struct{}{}
		<-free
		return inbox.Handled, nil
	}), silent, hurried, WithMaxOutstanding(100, 50_000))
	require.NoError(t, err)
	stop := begin(t, c)
	<-begun
	<-begun
	eventually(t, func() bool { return s.pending(t) == 8 }, "all are delivered")
	eventually(t, func() bool { return c.Stats().Received >= 2 }, "two are claimed")
	assert.EqualValues(t, 2, c.Stats().Claimed)
	close(free)
	eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "all are done")
	require.NoError(t, stop())
}
