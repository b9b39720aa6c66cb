package kafkaconsumer

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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/gorm-fanout/fanout/brokers"
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
	_, err := NewConsumer(nil, "", []string{"a", "a", ""}, nil, Config{MaxUncommittedMessages: -1, ConsumerConfig: inbox.ConsumerConfig{Workers: -1, DeadLetters: inbox.Always("a")}})
	for _, part := range []string{
		"there is no bootstrap server", "the group's name has 0 bytes", `the topic "a" is named twice`, "a topic has no name", "the handler is nil",
		"Workers is -1", "MaxUncommittedMessages is -1", `DeadLetters: those of "a" would go to "a", which is read itself`,
	} {
		require.ErrorContains(t, err, part)
	}
	_, err = NewConsumer([]string{"localhost"}, "g", []string{"a"}, handler, Config{Client: []kgo.Opt{kgo.SessionTimeout(-1)}})
	require.ErrorContains(t, err, "kafkaconsumer: Client: ")
	_, err = NewConsumer([]string{"localhost"}, "g", nil, handler, Config{})
	require.ErrorContains(t, err, "there is no topic")
}

// What the caller changes afterwards, and what a function answers later, is not the consumer's.
func TestConfigurationIsCopied(t *testing.T) {
	t.Parallel()
	s := newTopic(t, startFake(t))
	servers, topics, dead := slices.Clone(s.servers), []string{s.name}, s.dead
	source := make(chan string, 1)
	c, err := NewConsumer(servers, s.group, topics, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		source <- m.Source
		return "", inbox.Permanent(errors.New("no"))
	}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
		Source: func(string) string { return "from " + topics[0] }, DeadLetters: func(string) string { return dead }, Log: slog.New(slog.DiscardHandler),
	}}))
	require.NoError(t, err)
	servers[0], topics[0], dead = "127.0.0.1:1", "another", s.name // the topic that is read
	begin(t, c)
	s.publish(t, message("k", "1"))
	require.Equal(t, "from "+s.name, <-source)
	eventually(t, func() bool { return c.Stats().Forwarded == 1 }, "it is forwarded")
	require.Len(t, s.letters(t), 1)
}

// What the cluster refuses at the start ends Run, with advice.
func TestRefused(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		c, err := NewConsumer(servers, "billing", []string{"missing"}, handler, hurried(Config{}))
		require.NoError(t, err)
		require.ErrorContains(t, c.Run(t.Context()), "create the topic")
	})
}

// So does a login that is wrong, and a right that is missing.
func TestRefusedLogin(t *testing.T) {
	t.Parallel()
	const user, password = "relay", "hush"
	run := func(t *testing.T, servers []string, topic, password string) error {
		t.Helper()
		c, err := NewConsumer(servers, "billing", []string{topic}, handler,
			hurried(Config{Client: []kgo.Opt{kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism())}}))
		require.NoError(t, err)
		err = c.Run(t.Context())
		require.Error(t, err)
		assert.NotContains(t, err.Error(), password)
		return err
	}
	t.Run("Fake", func(t *testing.T) {
		t.Parallel()
		fake := newFake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", user, "right"))
		fake.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) { // which itself hangs up
			fake.KeepControl()
			answer := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return answer, nil, true
		})
		require.ErrorContains(t, run(t, fake.ListenAddrs(), "missing", password), "check user, password")
	})
	t.Run("Rights", func(t *testing.T) {
		t.Parallel()
		allow := func(kind kmsg.ACLResourceType, name string) kfake.ACL {
			return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
		}
		topic, group := allow(kmsg.ACLResourceTypeTopic, "orders"), allow(kmsg.ACLResourceTypeGroup, "billing")
		for want, rights := range map[string][]kfake.ACL{
			"grant the user Read and Describe on the topic": {group},
			"grant the user Read on the group":              {topic},
		} {
			fake := newFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders"), kfake.User("PLAIN", user, password, rights...))
			require.ErrorContains(t, run(t, fake.ListenAddrs(), "orders", password), want)
		}
	})
}

// A key whose head fails fills its partition, which is not read on; other partitions are. When it is
// healed, all goes on.
func TestFullPartition(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		var healed atomic.Bool
		var hot, cold atomic.Int64
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			if m.OrderingKey != "hot" {
				cold.Add(1)
				return inbox.Handled, nil
			}
			if !healed.Load() {
				return "", inbox.Unavailable(errors.New("out"))
			}
			hot.Add(1)
			return inbox.Handled, nil
		}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
			MaxOutstandingMessages: 20, MaxOutstandingBytes: 1 << 20, Retry: inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond},
		}}))
		require.NoError(t, err)
		stop := begin(t, c)
		var all []consumertest.Message
		for n := range 1500 {
			all = append(all, message("hot", fmt.Sprint("h", n)))
		}
		s.publish(t, all...)
		eventually(t, func() bool { return c.Stats().Claimed >= 20 }, "it is full")
		all = nil
		for n := range 300 {
			all = append(all, message(fmt.Sprint("k", n), fmt.Sprint("c", n)))
		}
		s.publish(t, all...)
		eventually(t, func() bool { return cold.Load() >= 150 }, "two of three partitions go on")
		assert.Less(t, c.Stats().Claimed, int64(20+2*pollMessages))
		healed.Store(true)
		eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "all are done")
		require.NoError(t, stop())
		assert.Equal(t, []int64{1500, 300}, []int64{hot.Load(), cold.Load()})
	})
}

// What a foreign producer puts into keys and headers takes room, too: a partition that is full of it waits,
// and others go on.
func TestKeysAndHeadersTakeRoom(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		free := make(chan struct{})
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			if m.Attributes["big"] != "" {
				<-free
			}
			return inbox.Handled, nil
		}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 10_000, MaxOutstandingBytes: 100_000}}))
		require.NoError(t, err)
		client, err := kgo.NewClient(kgo.SeedBrokers(s.servers...), kgo.DisableClientMetrics(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		defer client.Close()
		const all = 1000
		big := strings.Repeat("x", 5000)
		records := make([]*kgo.Record, all)
		for n := range records {
			records[n] = &kgo.Record{
				Topic: s.name, Key: []byte(big), Headers: []kgo.RecordHeader{{Key: "big", Value: []byte(big)}},
				Value: message("", strconv.Itoa(n)).Payload,
			}
		}
		require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
		stop := begin(t, c)
		eventually(t, func() bool { return c.Stats().Claimed >= 10 }, "it is full")
		const small = 50
		for n := range small {
			record := &kgo.Record{Topic: s.name, Partition: 1, Value: message("", "small"+strconv.Itoa(n)).Payload}
			require.NoError(t, client.ProduceSync(t.Context(), record).FirstErr())
			eventually(t, func() bool { return c.Stats().Handled > int64(n) }, "another partition goes on")
		}
		assert.Less(t, c.Stats().Claimed, int64(all/2))
		close(free)
		eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "all are done")
		require.NoError(t, stop())
		assert.EqualValues(t, all+small, c.Stats().Handled)
	})
}

// A member that the cluster has given up on, as one that was frozen, loses its partitions: its handlers
// are told, and it commits nothing of theirs any more. It joins again.
func TestThrownOut(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := newTopic(t, fake.ListenAddrs())
	var told atomic.Int64
	begun := make(chan struct{}, 10)
	c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
		begun <- struct{}{}
		if told.Load() > 0 {
			return inbox.Handled, nil
		}
		<-ctx.Done()
		told.Add(1)
		return inbox.Handled, nil // too late
	}), hurried(Config{}))
	require.NoError(t, err)
	stop := begin(t, c)
	s.publish(t, message("k", "1"))
	<-begun
	var once atomic.Bool
	fake.ControlKey(int16(kmsg.Heartbeat), func(request kmsg.Request) (kmsg.Response, error, bool) {
		if !once.CompareAndSwap(false, true) {
			return nil, nil, false //nolint:nilnil // the fake answers itself
		}
		answer := request.ResponseKind().(*kmsg.HeartbeatResponse)
		answer.ErrorCode = kerr.UnknownMemberID.Code
		return answer, nil, true
	})
	eventually(t, func() bool { return told.Load() == 1 }, "the handler is told")
	<-begun
	eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "it has come again")
	require.NoError(t, stop())
	assert.Equal(t, int64(2), c.Stats().Handled)
}

// A stop commits what is done.
func TestStopCommits(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{}))
		require.NoError(t, err)
		c.config.pace.commit = time.Hour
		stop := begin(t, c)
		s.publish(t, message("a", "1"), message("b", "2"), message("c", "3"))
		eventually(t, func() bool { return c.Stats().Handled == 3 }, "all are done")
		require.NoError(t, stop())
		assert.Zero(t, s.unconfirmed(t))
	})
}

// A topic of dead letters that is missing blocks the message, and what is behind it in its key.
func TestDeadLettersCannotBePublished(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		nowhere := s.name + "-nowhere"
		var said lines
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
			Retry: inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, DeadLetters: inbox.Always(nowhere), Log: slog.New(slog.NewTextHandler(&said, nil)),
		}}))
		require.NoError(t, err)
		stop := begin(t, c)
		s.publish(t, consumertest.Message{ID: "1", Type: "T.v1", Key: "k", Payload: []byte("nonsense")}, message("k", "2"))
		eventually(t, func() bool { return strings.Count(said.String(), "dead letter not published") > 1 }, "it is tried again")
		assert.Contains(t, said.String(), `produce to \"`+nowhere+`\"`)
		s.create(t, 1, nil, nowhere)
		eventually(t, func() bool { return s.unconfirmed(t) == 0 }, "it is there now")
		require.NoError(t, stop())
		assert.Equal(t, []int64{1, 1}, []int64{c.Stats().Forwarded, c.Stats().Handled})
	})
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

// A message as large as its topic allows fits the dead letters, without what is added.
func TestLargeDeadLetter(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		small := s.name + "-small"
		s.create(t, 1, map[string]*string{"max.message.bytes": ptr("20000")}, small)
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always(small)}}))
		require.NoError(t, err)
		stop := begin(t, c)
		s.publish(t, consumertest.Message{ID: "1", Type: "T.v1", Key: "k", Payload: []byte(strings.Repeat("nonsense", 2470))})
		eventually(t, func() bool { return c.Stats().Forwarded == 1 }, "it is forwarded")
		require.NoError(t, stop())
	})
}

func ptr(s string) *string { return &s }

// From the real publisher to the handler, and from one that knows nothing of ours: the key of the record
// is its ordering key; CloudEvents in the binary mode of their Kafka binding are read.
func TestFields(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		got := make(chan *inbox.Message, 2)
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			got <- m
			return inbox.Handled, nil
		}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Consumer: "invoices", Source: inbox.Always("ordering")}}))
		require.NoError(t, err)
		stop := begin(t, c)
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		m := message("key:1", "1")
		results := s.broker.Publish(t.Context(), []brokers.Message{{
			ID: "1", Destination: strings.Replace(s.name, ".", "::", 1), Type: "T.v1", OrderingKey: "key:1", Payload: m.Payload,
			Attributes: []brokers.Attribute{{Name: "traceparent", Value: parent}},
		}})
		require.NoError(t, results[0].Err)
		first := <-got
		assert.Equal(t, []string{"1", "T.v1", "key:1", "invoices", "ordering"}, []string{first.ID, first.Type, first.OrderingKey, first.Consumer, first.Source})
		assert.True(t, first.SpanContext().IsValid())
		assert.Contains(t, first.Position, "/0")
		assert.WithinDuration(t, time.Now(), first.Published, time.Minute)

		client, err := kgo.NewClient(kgo.SeedBrokers(s.servers...), kgo.DisableClientMetrics())
		require.NoError(t, err)
		defer client.Close()
		record := &kgo.Record{Topic: s.name, Key: []byte("foreign"), Value: []byte(`{"n":1}`)}
		for name, value := range map[string]string{"ce_specversion": "1.0", "ce_id": "7", "ce_source": "/s", "ce_type": "U.v1", "content-type": "application/json"} {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		require.NoError(t, client.ProduceSync(t.Context(), record).FirstErr())
		second := <-got
		require.NoError(t, stop())
		assert.Equal(t, []string{"7", "U.v1", "foreign"}, []string{second.ID, second.Type, second.OrderingKey})
		assert.JSONEq(t, `{"n":1}`, string(second.Envelope.Data))
	})
}
