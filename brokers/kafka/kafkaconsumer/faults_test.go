package kafkaconsumer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

// holds is how many partitions a consumer has.
func holds(c *Consumer) int {
	r := c.running.Load()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.partitions)
}

// Partitions that cannot be read, however many, keep none from moving to another member.
func TestErrorsDoNotBlockRebalances(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := newTopic(t, fake.ListenAddrs())
	_, err := s.admin.CreateTopic(t.Context(), 40, 1, nil, "many")
	require.NoError(t, err)
	var refused atomic.Int64
	fake.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		answer := request.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range request.(*kmsg.FetchRequest).Topics {
			told := kmsg.NewFetchResponseTopic()
			told.Topic, told.TopicID = topic.Topic, topic.TopicID
			for _, partition := range topic.Partitions {
				each := kmsg.NewFetchResponseTopicPartition()
				each.Partition, each.ErrorCode = partition.Partition, kerr.TopicAuthorizationFailed.Code
				told.Partitions = append(told.Partitions, each)
				refused.Add(1)
			}
			answer.Topics = append(answer.Topics, told)
		}
		return answer, nil, true
	})
	calm := hurried(Config{pace: pace{probe: time.Hour}}) // nothing says that the outage is over
	first, err := NewConsumer(s.servers, s.group, []string{"many"}, handler, calm)
	require.NoError(t, err)
	stopFirst := begin(t, first)
	eventually(t, func() bool { return holds(first) == 40 && refused.Load() > 40 }, "it cannot read")
	second, err := NewConsumer(s.servers, s.group, []string{"many"}, handler, calm)
	require.NoError(t, err)
	stopSecond := begin(t, second)
	eventually(t, func() bool { return holds(second) == 20 }, "the other gets its part")
	require.NoError(t, stopSecond())
	require.NoError(t, stopFirst())
}

// The timeouts of the group are the caller's to set.
func TestRebalanceTimeout(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := newTopic(t, fake.ListenAddrs())
	asked := make(chan int32, 10)
	fake.ControlKey(int16(kmsg.JoinGroup), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		select {
		case asked <- request.(*kmsg.JoinGroupRequest).RebalanceTimeoutMillis:
		default:
		}
		return nil, nil, false //nolint:nilnil // the fake answers itself
	})
	c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{Client: []kgo.Opt{kgo.RebalanceTimeout(7 * time.Second)}}))
	require.NoError(t, err)
	begin(t, c)
	assert.Equal(t, int32(7000), <-asked)
}

// After an unclean election of a leader, offsets are used again: what has another epoch is no copy.
func TestOffsetUsedAgain(t *testing.T) {
	t.Parallel()
	c, err := NewConsumer([]string{"localhost"}, "billing", []string{"topic"}, inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}), Config{ConsumerConfig: inbox.ConsumerConfig{ShutdownTimeout: -1, Log: silent}})
	require.NoError(t, err)
	r := c.newRun(t.Context())
	r.assigned(t.Context(), nil, map[string][]int32{"topic": {0}})
	for epoch := range int32(2) {
		r.take(&kgo.Record{Topic: "topic", Offset: 7, LeaderEpoch: epoch, Value: message("", "1").Payload})
	}
	r.Stop(func() {})
	assert.Equal(t, []int64{2, 0}, []int64{c.Stats().Received, c.Stats().Copies})
}

// A message that compresses well is as small as a dead letter, and one that is too large for the topic
// of dead letters is there without its payload: its key goes on.
func TestOversizedDeadLetters(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		const huge = 20 << 20
		for name, c := range map[string]struct {
			value, key []byte
			dead       string // max.message.bytes of the dead letters
			kept       bool
		}{
			"Compressed": {make([]byte, huge), []byte("k"), "1000000", true},
			"Payload":    {random(100_000), []byte("k"), "20000", false},
			"Key":        {nil, random(100_000), "20000", false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newTopic(t, servers)
				s.dead = s.name + "-small"
				s.create(t, 1, map[string]*string{"max.message.bytes": ptr(c.dead)}, s.dead)
				client, err := kgo.NewClient(kgo.SeedBrokers(s.servers...), kgo.DisableClientMetrics(), kgo.DefaultProduceTopic(s.name),
					kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(2*huge), kgo.RecordPartitioner(kgo.ManualPartitioner()))
				require.NoError(t, err)
				defer client.Close()
				require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Key: c.key, Value: c.value}, &kgo.Record{Key: c.key, Value: message("", "2").Payload}).FirstErr())
				var log lines
				consumer, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
					DeadLetters: inbox.Always(s.dead), Log: slog.New(slog.NewTextHandler(&log, nil)),
				}}))
				require.NoError(t, err)
				stop := begin(t, consumer)
				eventually(t, func() bool { return consumer.Stats().Handled == 1 }, "the key goes on")
				require.NoError(t, stop())
				assert.NotContains(t, log.String(), "dead letter not published")

				record := s.letter(t)
				header := attributesOf(record)
				digest := fmt.Sprintf("sha256:%x", sha256.Sum256(c.value))
				assert.Equal(t, "0/0", header[inbox.FieldDeadLetterPosition])
				assert.Equal(t, s.name, header[inbox.FieldDeadLetterSource])
				if c.kept {
					assert.Equal(t, digest, fmt.Sprintf("sha256:%x", sha256.Sum256(record.Value)))
					assert.Empty(t, header[inbox.FieldDeadLetterBytes])
					return
				}
				assert.Equal(t, []string{strconv.Itoa(len(c.value)), digest}, []string{header[inbox.FieldDeadLetterBytes], header[inbox.FieldDeadLetterDigest]})
				assert.Equal(t, len(c.key) <= maxStubKey, string(record.Key) == string(c.key))
				assert.Empty(t, record.Value)
				assert.NotNil(t, record.Value, "it is no tombstone")
				assert.Contains(t, log.String(), "dead letter without its payload")
			})
		}
	})
}

// random returns bytes that no codec makes smaller.
func random(n int) []byte {
	all := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(all)
	return all
}

// letter is the first dead letter.
func (s *topic) letter(t *testing.T) *kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.servers...), kgo.DisableClientMetrics(), kgo.ConsumeTopics(s.dead))
	require.NoError(t, err)
	defer client.Close()
	fetches := client.PollFetches(t.Context())
	require.NoError(t, fetches.Err())
	return fetches.Records()[0]
}

// A stop does not wait for a cluster that has gone silent, nor for the dead letters that cannot be written there.
func TestStopInSilence(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		source := s.source(t)
		proxy := source.Network
		settings := &consumertest.Settings{ConsumerConfig: inbox.ConsumerConfig{Workers: 4, Timeout: time.Minute, ShutdownTimeout: -1}, ThroughNetwork: true, HasDeadLetters: true}
		proceed := make(chan struct{})
		var begun, done atomic.Int64
		p := source.Consumer(t, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			begun.Add(1)
			defer done.Add(1)
			if m.ID != "1" {
				<-proceed
			}
			return "", inbox.Permanent(kerr.InvalidRecord)
		}), settings)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		s.publish(t, message("a", "1"), message("b", "2"), message("c", "3"))
		eventually(t, func() bool { return begun.Load() == 3 && p.(*Consumer).Stats().Forwarded == 1 }, "one is written")
		proxy.BlackHole(t)
		close(proceed)
		eventually(t, func() bool { return done.Load() == 3 }, "the others cannot be")
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(2 * time.Minute):
			t.Fatal("it waits")
		}
	})
}

// A cluster answers for topics in an order of its own: those that exist first.
func TestMissingTopicIsNamed(t *testing.T) {
	t.Parallel()
	fake := newFake(t, kfake.SeedTopics(1, "there"))
	fake.ControlKey(int16(kmsg.Metadata), func(asked kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if len(asked.(*kmsg.MetadataRequest).Topics) != 2 {
			return nil, nil, false //nolint:nilnil // that is how kfake is told to answer by itself
		}
		there, missing := kmsg.NewMetadataResponseTopic(), kmsg.NewMetadataResponseTopic()
		there.Topic, missing.Topic, missing.ErrorCode = kmsg.StringPtr("there"), kmsg.StringPtr("missing"), kerr.UnknownTopicOrPartition.Code
		answer := asked.ResponseKind().(*kmsg.MetadataResponse)
		answer.Topics = append(answer.Topics, there, missing)
		return answer, nil, true
	})
	c, err := NewConsumer(fake.ListenAddrs(), "billing", []string{"missing", "there"}, handler, Config{ConsumerConfig: inbox.ConsumerConfig{Log: silent}})
	require.NoError(t, err)
	require.ErrorContains(t, c.Run(t.Context()), `topic "missing"`)
}

// The group may be joined, and tell of its offsets, before the client that joins it has been returned:
// it waits for that, and goes on.
func TestGroupIsFasterThanItsClient(t *testing.T) {
	t.Parallel()
	servers := startFake(t)
	s := newTopic(t, servers)
	c, err := NewConsumer(servers, s.group, []string{s.name}, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) { return inbox.Handled, nil }),
		Config{NewOnly: true})
	require.NoError(t, err)
	for _, comes := range []bool{false, true} {
		r := c.newRun(t.Context())
		r.assigned(t.Context(), nil, map[string][]int32{s.name: {0}})
		asked := map[string]map[int32]kgo.Offset{s.name: {0: kgo.NewOffset().At(-1)}}
		ctx, cancel := context.WithCancel(t.Context())
		if comes {
			r.kafka, err = kgo.NewClient(kgo.SeedBrokers(servers...))
			require.NoError(t, err)
			close(r.opened)
		} else {
			cancel()
		}
		told, err := r.fetched(ctx, asked)
		if comes {
			require.NoError(t, err)
			assert.Zero(t, told[s.name][0].EpochOffset().Offset, "the end of an empty topic")
			r.kafka.Close()
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
	}
}
