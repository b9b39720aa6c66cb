package kafkaconsumer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

func TestMain(m *testing.M) {
	consumertest.Main(m, func(source string, handler inbox.Handler) (consumertest.Consumer, error) {
		parts := strings.Fields(source) // servers, group, topic
		return NewConsumer(strings.Split(parts[0], ","), parts[1], parts[2:], handler, hurried(Config{}))
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, servers []string) {
		consumertest.Run(t, consumertest.Harness{
			Source:   func(t *testing.T) *consumertest.Source { return newTopic(t, servers).source(t) },
			Together: true,
		})
	})
}

// realServers are those that FANOUT_TEST_KAFKA names.
func realServers(t testing.TB) []string {
	t.Helper()
	servers := os.Getenv("FANOUT_TEST_KAFKA")
	if servers == "" {
		t.Skip("FANOUT_TEST_KAFKA names no Kafka")
	}
	return strings.Split(servers, ",")
}

// everywhere runs a test with a fake cluster, and with a real one, which others use at the same time.
func everywhere(t *testing.T, test func(t *testing.T, servers []string)) {
	t.Helper()
	on(t, map[string]func(testing.TB) []string{"Fake": startFake, "Real": realServers}, test)
}

// somewhere runs a test with a fake cluster, and with a real one, too, where FANOUT_TEST_LONG is 1.
func somewhere(t *testing.T, test func(t *testing.T, servers []string)) {
	t.Helper()
	t.Parallel()
	if os.Getenv("FANOUT_TEST_LONG") == "1" {
		everywhere(t, test)
		return
	}
	on(t, map[string]func(testing.TB) []string{"Fake": startFake}, test)
}

func on(t *testing.T, clusters map[string]func(testing.TB) []string, test func(t *testing.T, servers []string)) {
	t.Helper()
	for name, servers := range clusters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, servers(t))
		})
	}
}

// startFake starts a Kafka in this process.
func startFake(t testing.TB) (servers []string) {
	t.Helper()
	return newFake(t).ListenAddrs()
}

// newFake starts one for a test that answers in its place.
func newFake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	fake, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	return fake
}

// hurried makes a consumer look and commit more often, be missed sooner, and log nothing unless it says where.
func hurried(config Config) Config {
	config.Log = cmp.Or(config.Log, silent)
	config.pace = pace{probe: cmp.Or(config.pace.probe, 20*time.Millisecond), commit: 100 * time.Millisecond}
	config.Client = append([]kgo.Opt{
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(50 * time.Millisecond), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}, config.Client...)
	return config
}

// topic is one of three partitions, with another for dead letters, and a group of its own.
type topic struct {
	servers    []string
	name, dead string
	group      string
	broker     *kafka.Broker
	admin      *kadm.Client
}

func newTopic(t *testing.T, servers []string) *topic {
	t.Helper()
	destination := "test::" + strings.ToLower(rand.Text())
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := &topic{servers: servers, name: kafka.TopicName(destination), admin: kadm.NewClient(client)}
	s.dead, s.group = s.name+"-dead", "billing-"+s.name
	s.create(t, 3, nil, s.name, s.dead)
	s.broker, err = kafka.Open(kafka.Settings{BootstrapServers: strings.Join(servers, ",")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.broker.Close(context.Background())) })
	return s
}

// create creates topics. A real cluster answers when its controller has made them, and its servers know
// them a moment later.
func (s *topic) create(t *testing.T, partitions int32, configs map[string]*string, names ...string) {
	t.Helper()
	answer, err := s.admin.CreateTopics(t.Context(), partitions, -1, configs, names...)
	require.NoError(t, err)
	require.NoError(t, answer.Error())
	eventually(t, func() bool {
		known, err := s.admin.ListTopics(t.Context(), names...)
		return err == nil && known.Error() == nil
	}, "the servers know them")
}

// remove deletes topics. Until the servers have done so, too, they take what is published to them.
func (s *topic) remove(t *testing.T, names ...string) {
	t.Helper()
	answer, err := s.admin.DeleteTopics(t.Context(), names...)
	require.NoError(t, err)
	require.NoError(t, answer.Error())
	eventually(t, func() bool {
		known, err := s.admin.ListTopics(t.Context(), names...)
		if err != nil {
			return false
		}
		for _, topic := range known {
			if !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
				return false
			}
		}
		return true
	}, "the servers have deleted them")
}

func (s *topic) source(t *testing.T) *consumertest.Source {
	t.Helper()
	proxy := brokertest.StartProxy(t, s.servers[0])
	address := proxy.Addr(t)
	return &consumertest.Source{
		Publish: s.publish, PublishForeign: s.publishForeign,
		Consumer: func(t *testing.T, handler inbox.Handler, settings *consumertest.Settings) consumertest.Consumer {
			config := Config{ConsumerConfig: settings.ConsumerConfig}
			if settings.HasDeadLetters {
				config.DeadLetters = inbox.Always(s.dead)
			}
			if settings.ThroughNetwork {
				config.Client = []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, address)
				})}
			}
			c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(config))
			require.NoError(t, err)
			return c
		},
		Unconfirmed: s.unconfirmed,
		DeadLetters: s.letters,
		Network:     proxy,
		Child:       strings.Join(s.servers, ",") + " " + s.group + " " + s.name,
	}
}

func (s *topic) destination() string { return strings.Replace(s.name, ".", "::", 1) }

// publish publishes as the relay does, through brokers/kafka.
func (s *topic) publish(t *testing.T, messages ...consumertest.Message) {
	t.Helper()
	out := make([]brokers.Message, len(messages))
	for i, m := range messages {
		out[i] = brokers.Message{ID: m.ID, Destination: s.destination(), Type: m.Type, OrderingKey: m.Key, Payload: m.Payload}
	}
	for _, result := range s.broker.Publish(t.Context(), out) {
		require.NoError(t, result.Err)
	}
}

// publishForeign publishes as another program does.
func (s *topic) publishForeign(t *testing.T, key string, payload []byte, attributes map[string]string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.servers...), kgo.DisableClientMetrics())
	require.NoError(t, err)
	defer client.Close()
	record := &kgo.Record{Topic: s.name, Key: []byte(key), Value: payload}
	for name, value := range attributes {
		if short, cut := strings.CutPrefix(name, "ce-"); cut {
			name = "ce_" + short
		}
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte("first of two")}, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	require.NoError(t, client.ProduceSync(t.Context(), record).FirstErr())
}

// unconfirmed is the lag of the group.
func (s *topic) unconfirmed(t *testing.T) (n int) {
	t.Helper()
	ends, err := s.admin.ListEndOffsets(t.Context(), s.name)
	require.NoError(t, err)
	committed, err := s.admin.FetchOffsets(t.Context(), s.group)
	if !errors.Is(err, kerr.GroupIDNotFound) {
		require.NoError(t, err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		n += int(end.Offset)
		if at, found := committed.Lookup(s.name, end.Partition); found && at.At > 0 {
			n -= int(at.At)
		}
	})
	return n
}

func (s *topic) letters(t *testing.T) (all []consumertest.DeadLetter) {
	t.Helper()
	ends, err := s.admin.ListEndOffsets(t.Context(), s.dead)
	require.NoError(t, err)
	left := int64(0)
	ends.Each(func(end kadm.ListedOffset) { left += end.Offset })
	client, err := kgo.NewClient(kgo.SeedBrokers(s.servers...), kgo.DisableClientMetrics(), kgo.ConsumeTopics(s.dead))
	require.NoError(t, err)
	defer client.Close()
	for int64(len(all)) < left {
		fetches := client.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			header := attributesOf(record)
			all = append(all, consumertest.DeadLetter{
				ID: header[brokers.FieldID], Key: string(record.Key), Payload: record.Value,
				Reason: header[inbox.FieldDeadLetterReason], Attempts: header[inbox.FieldDeadLetterAttempts],
			})
		})
	}
	return all
}
