package kafka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/kafka"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // most tests wait for the timeouts of a client
	// The fake cluster, not the broker: a control function that sleeps while its connection is closed
	// leaves its loop in a deadlock.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*Cluster).run"),
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*Cluster).runControl.func1"))
}

const (
	patience   = 30 * time.Second
	partitions = 3
)

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) { // one server, on disk, that is stopped and started
		t.Parallel()
		c := startCluster(t, kfake.NumBrokers(1), kfake.DataDir(t.TempDir()))
		h := c.harness(t)
		h.Stop = func(*testing.T) { c.stop() }
		h.Start = func(t *testing.T) { c.start(t) }
		throughNetwork(t, &h, c.seeds())
		brokertest.Run(t, h)
	})
	t.Run("cluster", func(t *testing.T) { // three servers
		t.Parallel()
		brokertest.Run(t, startCluster(t, kfake.NumBrokers(3)).harness(t))
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		brokertest.Run(t, realCluster(t).harness(t))
	})
}

// throughNetwork puts a proxy before a cluster of one server.
func throughNetwork(t *testing.T, h *brokertest.Harness, seeds []string) {
	proxy := brokertest.StartProxy(t, seeds[0])
	address := proxy.Addr(t)
	h.Network = proxy
	h.OpenThroughNetwork = func(t *testing.T) brokers.Broker {
		b, err := kafka.Open(kafka.Settings{BootstrapServers: strings.Join(seeds, ","), Timeout: time.Second, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}})
		require.NoError(t, err)
		return b
	}
}

// realCluster is the one that FANOUT_TEST_KAFKA names. Other tests use it at the same time.
func realCluster(t testing.TB) *reader {
	t.Helper()
	servers := os.Getenv("FANOUT_TEST_KAFKA")
	if servers == "" {
		t.Skip("FANOUT_TEST_KAFKA names no Kafka")
	}
	return newReader(t, strings.Split(servers, ","))
}

// everywhere runs a test with the fake, of so many servers, and with a real cluster.
func everywhere(t *testing.T, servers int, test func(t *testing.T, r *reader)) {
	t.Helper()
	t.Parallel()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(t, startCluster(t, kfake.NumBrokers(servers)).reader)
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, realCluster(t))
	})
}

// cluster is a Kafka in this process.
type cluster struct {
	*reader

	opts  []kfake.Opt
	ports []int

	mu      sync.Mutex
	fake    *kfake.Cluster // the last one: what it runs may still ask for it when it has ended
	runs    bool
	refused map[string]bool // ids of messages
}

func startCluster(t testing.TB, opts ...kfake.Opt) *cluster {
	t.Helper()
	c := &cluster{opts: opts, refused: map[string]bool{}}
	t.Cleanup(c.stop)
	c.start(t)
	c.reader = newReader(t, c.seeds())
	return c
}

// start starts the cluster, at the addresses that it had.
func (c *cluster) start(t testing.TB) {
	t.Helper()
	fake, err := kfake.NewCluster(append(c.opts, kfake.Ports(c.ports...))...)
	require.NoError(t, err)
	c.ports = nil
	for _, address := range fake.ListenAddrs() {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		n, err := strconv.Atoi(port)
		require.NoError(t, err)
		c.ports = append(c.ports, n)
	}
	fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		answer, refused := c.refuse(request.(*kmsg.ProduceRequest))
		return answer, nil, refused
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fake, c.runs = fake, true
}

func (c *cluster) stop() {
	c.mu.Lock()
	fake, runs := c.fake, c.runs
	c.runs = false
	c.mu.Unlock()
	if runs {
		fake.Close()
	}
}

func (c *cluster) seeds() []string {
	seeds := make([]string, len(c.ports))
	for i, port := range c.ports {
		seeds[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	return seeds
}

// refuse answers a request that has a refused message: its batch is refused, the others of the request
// are to come again.
func (c *cluster) refuse(request *kmsg.ProduceRequest) (answer *kmsg.ProduceResponse, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer = answering(request, func(records []byte) *kerr.Error {
		for id := range c.refused {
			if bytes.Contains(records, []byte(id)) {
				refused = true
				return kerr.InvalidRecord
			}
		}
		return kerr.NotLeaderForPartition
	})
	return answer, refused
}

// answering is the answer to a request with messages that has a code for each batch; nil confirms it.
func answering(request kmsg.Request, code func(records []byte) *kerr.Error) *kmsg.ProduceResponse {
	answer := request.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range request.(*kmsg.ProduceRequest).Topics {
		out := kmsg.NewProduceResponseTopic()
		out.Topic, out.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition = partition.Partition
			if err := code(partition.Records); err != nil {
				p.ErrorCode = err.Code
			}
			out.Partitions = append(out.Partitions, p)
		}
		answer.Topics = append(answer.Topics, out)
	}
	return answer
}

// confirming confirms all batches of a request, and has the client wait.
func confirming(request kmsg.Request, wait time.Duration) *kmsg.ProduceResponse {
	answer := answering(request, func([]byte) *kerr.Error { return nil })
	answer.ThrottleMillis = int32(wait.Milliseconds())
	return answer
}

func (c *cluster) harness(t *testing.T) brokertest.Harness {
	h := c.reader.harness(t)
	h.Refuse = func(_ *testing.T, id string) (restore func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refused[id] = true
		return func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.refused, id)
		}
	}
	return h
}

// reader creates topics, and reads them.
type reader struct {
	servers []string
	run     string // in the names of its topics: they stay in a real cluster
	number  atomic.Int64
	admin   *kadm.Client

	mu   sync.Mutex
	next map[string]map[int32]kgo.Offset // by topic: where to go on reading
	seen map[string][]brokers.Message
}

func newReader(t testing.TB, servers []string) *reader {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &reader{servers: servers, run: strings.ToLower(rand.Text()[:10]), admin: kadm.NewClient(client), next: map[string]map[int32]kgo.Offset{}, seen: map[string][]brokers.Message{}}
}

func (r *reader) harness(t *testing.T) brokertest.Harness {
	t.Helper()
	return brokertest.Harness{
		Open: func(t *testing.T) brokers.Broker {
			b, err := kafka.Open(kafka.WithoutCompression(kafka.Settings{BootstrapServers: strings.Join(r.servers, ",")}))
			require.NoError(t, err)
			return b
		},
		Destination: func(t *testing.T) string {
			destination := fmt.Sprintf("test-%s::order%d", r.run, r.number.Add(1))
			r.create(t, kafka.TopicName(destination))
			return destination
		},
		Received: r.received,
	}
}

// name is that of a topic of this test.
func (r *reader) name(name string) string { return name + "-" + r.run }

// create creates topics, which the harness of a real cluster leaves there.
func (r *reader) create(t testing.TB, topics ...string) { r.createWith(t, partitions, nil, topics...) }

// createWith creates topics with a configuration. A real cluster answers when its controller has made
// them, and its servers know them a moment later.
func (r *reader) createWith(t testing.TB, partitions int32, configs map[string]*string, topics ...string) {
	t.Helper()
	answer, err := r.admin.CreateTopics(t.Context(), partitions, -1, configs, topics...)
	require.NoError(t, err)
	require.NoError(t, answer.Error())
	require.Eventually(t, func() bool {
		known, err := r.admin.ListTopics(t.Context(), topics...)
		return err == nil && known.Error() == nil
	}, patience, 5*time.Millisecond, "the servers know %v", topics)
}

// remove deletes a topic, and waits until the servers have: until then they take what is published to it.
func (r *reader) remove(t testing.TB, topic string) {
	t.Helper()
	_, err := r.admin.DeleteTopic(t.Context(), topic)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		known, err := r.admin.ListTopics(t.Context(), topic)
		return err == nil && errors.Is(known.Error(), kerr.UnknownTopicOrPartition)
	}, patience, 5*time.Millisecond, "the servers have deleted %q", topic)
}

// received reads what is new in a topic, partition by partition.
func (r *reader) received(t *testing.T, destination string) []brokers.Message {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	topic := kafka.TopicName(destination)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ends, err := r.admin.ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	if r.next[topic] == nil {
		r.next[topic] = map[int32]kgo.Offset{}
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		start, known := r.next[topic][end.Partition]
		if !known {
			start = kgo.NewOffset().At(0)
		}
		if end.Offset > start.EpochOffset().Offset {
			from[end.Partition], left[end.Partition] = start, end.Offset
		}
	})
	if len(from) == 0 {
		return r.seen[topic]
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(r.servers...), kgo.DisableClientMetrics(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	require.NoError(t, err)
	defer client.Close()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			r.seen[topic] = append(r.seen[topic], fromWire(destination, record))
			r.next[topic][record.Partition] = kgo.NewOffset().At(record.Offset + 1)
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
		})
	}
	return r.seen[topic]
}

// fromWire is the message of a record.
func fromWire(destination string, record *kgo.Record) brokers.Message {
	m := brokers.Message{Destination: destination, ContentType: brokers.DefaultContentType, Payload: record.Value}
	for _, header := range record.Headers {
		value := string(header.Value)
		switch header.Key {
		case brokers.FieldID:
			m.ID = value
		case brokers.FieldType:
			m.Type = value
		case brokers.FieldOrderingKey:
			m.OrderingKey = value
		case brokers.FieldCorrelationID:
			m.CorrelationID = value
		case brokers.FieldContentType:
			m.ContentType = value
		default:
			m.Attributes = append(m.Attributes, brokers.Attribute{Name: header.Key, Value: value})
		}
	}
	return m
}

// open opens a broker and closes it with the test.
func open(t testing.TB, seeds []string, settings ...kafka.Settings) *kafka.Broker {
	t.Helper()
	var s kafka.Settings
	if len(settings) > 0 {
		s = settings[0]
	}
	s.BootstrapServers = strings.Join(seeds, ",")
	b, err := kafka.Open(s)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, b.Close(ctx))
	})
	return b
}

func numbered(destination, key string, n int) brokers.Message {
	return brokers.Message{
		ID: fmt.Sprintf("id-%d-", n), Destination: destination, Type: "T.v1", OrderingKey: key, ContentType: brokers.DefaultContentType,
		Payload: fmt.Appendf(nil, "%d", n),
	}
}

// classes are the classes and scopes of results.
func classes(results []brokers.Result) []string {
	all := make([]string, len(results))
	for i, result := range results {
		class, scope := brokers.Classify(result.Err)
		all[i] = strings.TrimSpace(string(class) + " " + string(scope))
	}
	return all
}
