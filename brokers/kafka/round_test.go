package kafka_test

import (
	"fmt"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// What a round has for a partition is one batch, also where the client has yet to learn of the topic
// although it is already sending. Of two batches the second would be taken although the first is
// refused, and a later message of a key would be there without an earlier one.
func TestOneBatchForAPartition(t *testing.T) {
	t.Parallel()
	const topics, each = 40, 250
	var seeded []string
	for i := range topics {
		seeded = append(seeded, fmt.Sprint("topic-", i))
	}
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, seeded...))
	var mu sync.Mutex
	batches := map[string]int{}
	fake := c.fake
	fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		assert.EqualValues(t, -1, request.(*kmsg.ProduceRequest).Acks, "all replicas in sync confirm")
		for _, topic := range request.(*kmsg.ProduceRequest).Topics {
			batches[fmt.Sprint(topic.Topic, topic.TopicID)] += len(topic.Partitions)
		}
		return nil, nil, false //nolint:nilnil // the fake cluster answers
	})
	b := open(t, c.seeds())
	for i := 0; i < topics; i += 2 { // two topics in each round, so that one is sent to while the other is learnt of
		var msgs []brokers.Message
		for n := range 2 * each {
			msgs = append(msgs, numbered(seeded[i+n%2], "key-"+seeded[i+n%2], n))
		}
		for _, result := range b.Publish(t.Context(), msgs) {
			require.NoError(t, result.Err)
		}
	}
	require.Len(t, batches, topics)
	for topic, n := range batches {
		assert.Equal(t, 1, n, "batches of %q", topic)
	}
}

// The client knows the partitions of a topic that it learns of a moment after all records have theirs. A
// flush that begins in between finds nothing to send: the round must not wait for its own end.
func TestFlushBeforePartitionsAreKnown(t *testing.T) { // not parallel: a flush of another test would do, too
	c := startCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "learnt"))
	msgs := make([]brokers.Message, 0, 30)
	for n := range 30 {
		msgs = append(msgs, numbered("learnt", fmt.Sprint("key-", n), n))
	}
	hook := &flushes{left: len(msgs)}
	b := open(t, c.seeds(), kafka.WithHook(kafka.Settings{Timeout: 2 * time.Second}, hook))
	for i, result := range b.Publish(t.Context(), msgs) {
		require.NoError(t, result.Err, "message %d", i)
	}
	require.Zero(t, hook.left, "the flush has begun before the client knew the partitions")
}

// flushes holds the last record until a flush waits.
type flushes struct{ left int }

var flushWaits = regexp.MustCompile(`goroutine \d+ \[select[^]]*\]:\n\S+/kgo\.\(\*Client\)\.Flush\(`)

// OnProduceRecordPartitioned implements [kgo.HookProduceRecordPartitioned].
func (f *flushes) OnProduceRecordPartitioned(*kgo.Record, int32) {
	if f.left--; f.left > 0 {
		return
	}
	stacks := make([]byte, 4<<20)
	for !flushWaits.Match(stacks[:runtime.Stack(stacks, true)]) {
		runtime.Gosched()
	}
}

// That a topic cannot be created is its destination's matter, whatever the reason: it costs no message
// an attempt, and other destinations nothing.
func TestTopicCannotBeCreated(t *testing.T) {
	t.Parallel()
	for _, reason := range []*kerr.Error{kerr.InvalidConfig, kerr.ClusterAuthorizationFailed, kerr.NotController, kerr.UnknownServerError} {
		c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "there"))
		c.fake.ControlKey(int16(kmsg.CreateTopics), func(request kmsg.Request) (kmsg.Response, error, bool) {
			c.fake.KeepControl()
			answer := request.ResponseKind().(*kmsg.CreateTopicsResponse)
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode = "missing", reason.Code
			answer.Topics = append(answer.Topics, topic)
			return answer, nil, true
		})
		b := open(t, c.seeds(), kafka.Settings{CreateDestinations: true})
		msgs := make([]brokers.Message, 0, 600)
		for n := range 600 { // in two rounds
			msgs = append(msgs, numbered("there", "", n))
		}
		msgs[0].Destination, msgs[0].OrderingKey = "missing", "a"
		results := b.Publish(t.Context(), msgs)
		assert.Equal(t, []string{"unavailable destination", ""}, classes([]brokers.Result{results[0], results[599]}), "%v", reason)
		require.ErrorIs(t, results[0].Err, reason)
	}
}
