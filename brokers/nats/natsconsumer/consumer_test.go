package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

var (
	handler = inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) { return inbox.Handled, nil })
	silent  = slog.New(slog.DiscardHandler)
)

// begin runs a consumer until the test ends it.
func begin(t *testing.T, c *Consumer) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { require.NoError(t, stop()) })
	return stop
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
}

func message(key, id string) consumertest.Message {
	return consumertest.Message{ID: id, Type: "T.v1", Key: key, Payload: fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"T.v1","data":{}}`, id)}
}

// All that is wrong is reported at once.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	_, err := NewConsumer(nil, "a.b", "", nil, Config{ConsumerConfig: inbox.ConsumerConfig{Workers: -1, DeadLetters: inbox.Always("dead.>")}})
	for _, part := range []string{
		"the connection is nil", `"a.b" is no name of a stream`, `"" is no name of a durable`, "the handler is nil", "Workers is -1",
		`DeadLetters: "dead.>" is no subject`,
	} {
		require.ErrorContains(t, err, part)
	}
}

// What the server says at the start that waiting does not cure ends Run, with advice.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	_, err := s.js.CreateConsumer(t.Context(), "ORDERING", jetstream.ConsumerConfig{Durable: "careless", AckPolicy: jetstream.AckNonePolicy})
	require.NoError(t, err)
	for _, test := range []struct{ stream, durable, want string }{
		{"NOWHERE", "billing", "create the stream"},
		{"ORDERING", "nobody", "create the durable consumer nobody"},
		{"ORDERING", "careless", "make one whose AckPolicy is explicit"},
	} {
		c, err := NewConsumer(s.conn, test.stream, test.durable, handler, hurried(Config{}))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		require.ErrorContains(t, c.Run(ctx), test.want, "%s %s", test.stream, test.durable)
		cancel()
	}
	c, err := NewConsumer(s.conn, "ORDERING", "new", handler, hurried(Config{Create: &jetstream.ConsumerConfig{FilterSubject: "a", FilterSubjects: []string{"b"}}}))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorContains(t, c.Run(ctx), "check Create")
}

// What the caller changes afterwards is not the consumer's.
func TestCreateIsCopied(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	create := &jetstream.ConsumerConfig{FilterSubjects: []string{"ordering.order"}, Metadata: map[string]string{"team": "billing"}}
	c, err := NewConsumer(s.conn, "ORDERING", "first", handler, hurried(Config{Create: create}))
	require.NoError(t, err)
	create.FilterSubjects[0], create.Metadata["team"], create.MaxDeliver = "ordering.invoice", "invoices", 1 // for a second one
	begin(t, c)
	var durable jetstream.Consumer
	eventually(t, func() bool {
		durable, err = s.js.Consumer(t.Context(), "ORDERING", "first")
		return err == nil
	}, "it is created")
	made := durable.CachedInfo().Config
	require.Equal(t, []string{"ordering.order"}, made.FilterSubjects)
	require.Equal(t, "billing", made.Metadata["team"])
	require.NotEqual(t, 1, made.MaxDeliver)
}

// A durable consumer that is missing is created, by several processes at once.
func TestCreate(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	s.publish(t, message("k", "1"), message("k", "2"))
	var handled atomic.Int64
	for range 3 {
		c, err := NewConsumer(s.conn, "ORDERING", "created", inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
			handled.Add(1)
			return inbox.Handled, nil
		}), hurried(Config{Create: &jetstream.ConsumerConfig{AckWait: time.Minute}}))
		require.NoError(t, err)
		begin(t, c)
	}
	eventually(t, func() bool { return handled.Load() == 2 }, "both are handled")
	durable, err := s.js.Consumer(t.Context(), "ORDERING", "created")
	require.NoError(t, err)
	assert.Equal(t, time.Minute, durable.CachedInfo().Config.AckWait)
}

// The exclusive consumer of a durable waits for what a process that died had claimed, and so keeps the order
// although newer messages are there.
func TestSole(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	s.publish(t, message("k", "0"), message("k", "1"))
	durable, err := s.js.Consumer(t.Context(), "ORDERING", "billing")
	require.NoError(t, err)
	died, err := durable.Fetch(2) // and never confirmed
	require.NoError(t, err)
	for range 2 {
		require.NotNil(t, <-died.Messages())
	}
	s.publish(t, message("k", "2"))
	got := make(chan string, 3)
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		got <- fmt.Sprint(m.ID, " ", m.Deliveries)
		return inbox.Handled, nil
	}), hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	stop := begin(t, c)
	assert.Equal(t, []string{"0 2", "1 2", "2 1"}, []string{<-got, <-got, <-got})
	require.NoError(t, stop())
}

// What is delivered to a predecessor while the exclusive consumer waits, as over a connection that the server
// does not know to be dead, is waited for, too.
func TestSolePredecessorStillFetches(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	s.publish(t, message("k", "0"), message("k", "1"))
	s.steal(t, 1)
	o := &diary{}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", o, hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	questions := 0
	c.js = &asked{c.js, func(*jetstream.ConsumerInfo) {
		if questions++; questions == 5 { // it waits
			s.steal(t, 1)
			s.publish(t, message("k", "2"))
		}
	}}
	stop := begin(t, c)
	eventually(t, func() bool { return len(o.done()) == 3 }, "all are done")
	require.NoError(t, stop())
	assert.Equal(t, []string{"0", "1", "2"}, o.done())
}

// What a predecessor has given back to make room, for longer than AckWait, is waited for, too.
func TestSolePredecessorMadeRoom(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	s.publish(t, message("k", "0"), message("k", "1"))
	require.NoError(t, s.steal(t, 2)[0].NakWithDelay(1500*time.Millisecond))
	s.publish(t, message("k", "2"))
	got := make(chan string, 3)
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		got <- m.ID
		return inbox.Handled, nil
	}), hurried(Config{Exclusive: true, pace: pace{away: 1500 * time.Millisecond}}))
	require.NoError(t, err)
	stop := begin(t, c)
	assert.Equal(t, []string{"0", "1", "2"}, []string{<-got, <-got, <-got})
	require.NoError(t, stop())
}

// An exclusive consumer gives nothing back to make room, since what is given back could be overtaken: where one
// key fills the room, the others wait.
func TestSoleKeepsWhatFillsTheRoom(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	const all = 40
	want := make([]string, all)
	for n := range want {
		want[n] = strconv.Itoa(n)
		s.publish(t, message("k", want[n]))
	}
	fails := time.Now().Add(time.Second)
	got := make(chan string, 2*all)
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		if time.Now().Before(fails) {
			return "", errors.New("not yet")
		}
		got <- m.ID
		return inbox.Handled, nil
	}), hurried(Config{
		ConsumerConfig: inbox.ConsumerConfig{
			MaxOutstandingMessages: 8, MaxOutstandingBytes: 1 << 20, Retry: inbox.Retry{BaseDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond, MaxAttempts: 1000},
		},
		Exclusive: true,
	}))
	require.NoError(t, err)
	stop := begin(t, c)
	first, seen := []string{}, map[string]bool{}
	for len(first) < all {
		if id := <-got; !seen[id] {
			first, seen[id] = append(first, id), true
		}
	}
	assert.Equal(t, want, first)
	require.NoError(t, stop())
}

// recording is an exclusive consumer, over a network, that says what it handles; wait is called before each
// message.
func recording(t *testing.T, s *jetServer, proxy *brokertest.Proxy, wait func(id string)) (c *Consumer, got chan string) {
	t.Helper()
	got = make(chan string, 100)
	c, err := NewConsumer(s.connect(t, "nats://"+proxy.Addr(t)), "ORDERING", "billing", inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		wait(m.ID)
		got <- m.ID
		return inbox.Handled, nil
	}), hurried(Config{Exclusive: true}))
	require.NoError(t, err)
	return c, got
}

// What was delivered to an exclusive consumer and got lost on its way comes again AckWait later. Until then
// nothing newer is handled, and then all of it in the order of the stream.
func TestSoleLosesDeliveries(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{AckWait: 4 * time.Second})
	proxy := brokertest.StartProxy(t, s.addr)
	c, got := recording(t, s, proxy, func(string) {})
	stop := begin(t, c)
	s.publish(t, message("k", "0"))
	require.Equal(t, "0", <-got)
	pending := func() int {
		durable, err := s.js.Consumer(t.Context(), "ORDERING", "billing")
		require.NoError(t, err)
		return durable.CachedInfo().NumAckPending
	}
	eventually(t, func() bool { return s.settled(t) }, "it is confirmed")
	proxy.BlackHole(t)
	s.publish(t, message("k", "1"), message("k", "2"))
	eventually(t, func() bool { return pending() > 0 }, "it is on its way")
	proxy.Heal(t)
	s.publish(t, message("k", "3"), message("k", "4"))
	assert.Equal(t, []string{"1", "2", "3", "4"}, []string{<-got, <-got, <-got, <-got})
	require.NoError(t, stop())
}

// An exclusive consumer that is cut off for longer than AckWait goes on with what it has claimed, since
// nobody else gets it, and nothing newer overtakes that.
func TestSoleCutOff(t *testing.T) {
	t.Parallel()
	const ackWait = 300 * time.Millisecond
	s := startServer(t, jetstream.ConsumerConfig{AckWait: ackWait})
	proxy := brokertest.StartProxy(t, s.addr)
	begun, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c, got := recording(t, s, proxy, func(id string) {
		if id == "0" {
			once.Do(func() { close(begun) })
			<-free
		}
	})
	stop := begin(t, c)
	s.publish(t, message("k", "0"), message("k", "1"), message("k", "2"))
	<-begun
	eventually(t, func() bool { return c.Stats().Claimed == 3 }, "all are claimed")
	proxy.BlackHole(t)
	eventually(t, func() bool { return !c.conn.IsConnected() }, "it knows that it is cut off")
	s.publish(t, message("k", "3"))
	require.Never(t, func() bool { return c.Stats().Claimed < 3 }, 2*ackWait, 5*time.Millisecond, "it keeps what it has claimed")
	proxy.Heal(t)
	close(free)
	seen, first := map[string]bool{}, []string{}
	for len(first) < 4 {
		if id := <-got; !seen[id] {
			first, seen[id] = append(first, id), true
		}
	}
	assert.Equal(t, []string{"0", "1", "2", "3"}, first)
	require.NoError(t, stop())
}

// A consumer that is cut off for longer than AckWait has lost its messages: the contexts of its handlers
// end. A copy that comes waits for them.
func TestCutOff(t *testing.T) {
	t.Parallel()
	const ackWait = time.Second
	s := startServer(t, jetstream.ConsumerConfig{AckWait: ackWait})
	proxy := brokertest.StartProxy(t, s.addr)
	confirmations, err := s.conn.SubscribeSync("$JS.ACK.ORDERING.billing.>")
	require.NoError(t, err)
	var times atomic.Int64
	begun := make(chan struct{}, 10)
	c, err := NewConsumer(s.connect(t, "nats://"+proxy.Addr(t)), "ORDERING", "billing", inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
		begun <- struct{}{}
		if times.Add(1) == 1 {
			<-ctx.Done()
		}
		return inbox.Handled, nil
	}), hurried(Config{}))
	require.NoError(t, err)
	stop := begin(t, c)
	s.publish(t, message("k", "0"))
	<-begun
	late := false                                       // on a machine that stood still
	for last, n := time.Now(), 0; n < 2*renewals; n++ { // for twice AckWait
		m, err := confirmations.NextMsg(time.Minute)
		require.NoError(t, err)
		require.Equal(t, "+WPI", string(m.Data))
		late, last = late || time.Since(last) > ackWait/2, time.Now()
	}
	assert.True(t, late || times.Load() == 1, "as long as it says that it works on it, the message is its own")
	proxy.BlackHole(t)
	eventually(t, func() bool { return c.Stats().Claimed == 0 }, "it gives up")
	proxy.Heal(t)
	eventually(t, func() bool { return s.settled(t) }, "it has come again")
	require.NoError(t, stop())
	assert.GreaterOrEqual(t, times.Load(), int64(2))
}

// A subject for dead letters that no stream takes blocks the message.
func TestDeadLettersCannotBePublished(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	var said lines
	c, err := NewConsumer(s.conn, "ORDERING", "billing", handler, hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
		Retry: inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, DeadLetters: inbox.Always("nowhere"), Log: slog.New(slog.NewTextHandler(&said, nil)),
	}}))
	require.NoError(t, err)
	stop := begin(t, c)
	s.publish(t, consumertest.Message{ID: "1", Type: "T.v1", Key: "k", Payload: []byte("nonsense")}, message("k", "2"))
	eventually(t, func() bool { return strings.Count(said.String(), "dead letter not published") > 1 }, "it is tried again")
	_, err = s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOWHERE", Subjects: []string{"nowhere"}})
	require.NoError(t, err)
	eventually(t, func() bool { return s.settled(t) }, "it is there now")
	require.NoError(t, stop())
	assert.Equal(t, []int64{1, 1}, []int64{c.Stats().Forwarded, c.Stats().Handled})
}

// lines are a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// What a sender puts into headers costs nothing but its own message: instructions to the server, and as
// many bytes as a stream takes.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	for _, header := range []nats.Header{
		{"Nats-Expected-Stream": {"ORDERING"}, "nats-rollup": {"all"}, "X": {"1", "2"}},
		{"Big": {strings.Repeat("x", 60<<10)}},
		{"dead_letter_reason": {"mine"}, "ordering_key": {"%zz"}},
	} {
		m := &nats.Msg{Subject: "ordering.order", Header: header, Data: []byte("nonsense")}
		delete(m.Header, "nats-rollup")
		_, err := s.js.PublishMsg(t.Context(), m)
		require.NoError(t, err)
	}
	c, err := NewConsumer(s.conn, "ORDERING", "billing", handler, hurried(Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always("dead.billing")}}))
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return c.Stats().Forwarded == 3 }, "all are forwarded")
	require.NoError(t, stop())
	letters := s.letters(t)
	require.Len(t, letters, 3)
	at := slices.IndexFunc(letters, func(l consumertest.DeadLetter) bool { return l.Key == "%zz" })
	require.GreaterOrEqual(t, at, 0)
	assert.NotEqual(t, "mine", letters[at].Reason)
}

// From the real publisher to the handler: the ordering key, also one that a header cannot carry, the
// trace, the id.
func TestFields(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	got := make(chan *inbox.Message, 1)
	c, err := NewConsumer(s.conn, "ORDERING", "billing", inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		got <- m
		return inbox.Handled, nil
	}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Consumer: "invoices", Source: inbox.Always("orders")}}))
	require.NoError(t, err)
	stop := begin(t, c)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	results := s.broker.Publish(t.Context(), []brokers.Message{{
		ID: "1", Destination: "ordering::order", Type: "T.v1", OrderingKey: "50 %\nof 1", Payload: message("", "1").Payload,
		Attributes: []brokers.Attribute{{Name: "traceparent", Value: parent}},
	}})
	require.NoError(t, results[0].Err)
	m := <-got
	require.NoError(t, stop())
	assert.Equal(t, []string{"1", "T.v1", "50 %\nof 1", "invoices", "orders", "1"}, []string{m.ID, m.Type, m.OrderingKey, m.Consumer, m.Source, m.Position})
	assert.Equal(t, 1, m.Deliveries)
	assert.True(t, m.SpanContext().IsValid())
	assert.WithinDuration(t, time.Now(), m.Published, time.Minute)
}

// A connection that is closed under a consumer ends it, with advice.
func TestConnectionClosed(t *testing.T) {
	t.Parallel()
	s := startServer(t, jetstream.ConsumerConfig{})
	conn := s.connect(t, s.url)
	rare := hurried(Config{})
	rare.pace.probe = time.Hour
	c, err := NewConsumer(conn, "ORDERING", "billing", handler, rare) // a fetch notices it
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	s.publish(t, message("k", "1"))
	eventually(t, func() bool { return c.Stats().Handled == 1 }, "it runs")
	conn.Close()
	require.ErrorContains(t, <-ended, "close it after Run has returned")
	require.ErrorContains(t, c.Run(t.Context()), "nats.MaxReconnects(-1)")
}
