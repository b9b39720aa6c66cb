package kafkaconsumer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/inbox"
)

// remake deletes topics and makes them anew.
func (s *topic) remake(t *testing.T, names ...string) {
	t.Helper()
	_, err := s.admin.DeleteTopics(t.Context(), names...)
	require.NoError(t, err)
	_, err = s.admin.CreateTopics(t.Context(), 3, 1, nil, names...)
	require.NoError(t, err)
}

// forgetful has the fake do what Kafka does, and it does not: the offsets of a topic go with it.
func forgetful(fake *kfake.Cluster, is *atomic.Bool) {
	fake.ControlKey(int16(kmsg.OffsetFetch), func(asked kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if !is.Load() {
			return nil, nil, false //nolint:nilnil // that is how kfake is told to answer by itself
		}
		answer := asked.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, group := range asked.(*kmsg.OffsetFetchRequest).Groups {
			told := kmsg.NewOffsetFetchResponseGroup()
			told.Group = group.Group
			for _, topic := range group.Topics {
				of := kmsg.NewOffsetFetchResponseGroupTopic()
				of.Topic, of.TopicID = topic.Topic, topic.TopicID
				for _, partition := range topic.Partitions {
					each := kmsg.NewOffsetFetchResponseGroupTopicPartition()
					each.Partition, each.Offset = partition, -1
					of.Partitions = append(of.Partitions, each)
				}
				told.Topics = append(told.Topics, of)
			}
			answer.Groups = append(answer.Groups, told)
		}
		return answer, nil, true
	})
}

// A topic that is deleted and made anew is read from its beginning, and no offset of the old one is
// committed to it: of a message that was under way, or of a partition that is no more.
func TestTopicIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, options := range [][]Option{nil, {WithNewOnly()}} {
		t.Run(fmt.Sprint(len(options)), func(t *testing.T) {
			t.Parallel()
			fake, err := kfake.NewCluster(kfake.NumBrokers(1))
			require.NoError(t, err)
			t.Cleanup(fake.Close)
			var anew atomic.Bool
			var highest atomic.Int64
			fake.ControlKey(int16(kmsg.OffsetCommit), func(asked kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				for _, topic := range asked.(*kmsg.OffsetCommitRequest).Topics {
					for _, partition := range topic.Partitions {
						if anew.Load() {
							highest.Store(max(highest.Load(), partition.Offset))
						}
					}
				}
				return nil, nil, false //nolint:nilnil // that is how kfake is told to answer by itself
			})
			forgetful(fake, &anew)
			s := newTopic(t, fake.ListenAddrs())
			var old, handled sync.Map
			count := func(of *sync.Map) (n int) { of.Range(func(any, any) bool { n++; return true }); return n }
			slow := make(chan struct{})
			c, err := NewConsumer(s.servers, "billing", []string{s.name}, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
				if m.OrderingKey == "new" {
					handled.Store(m.ID, true)
					return inbox.Handled, nil
				}
				old.Store(m.ID, true)
				if m.OrderingKey == "slow" {
					select {
					case <-slow:
					case <-ctx.Done():
					}
				}
				return inbox.Handled, nil
			}), append(options, silent, hurried)...)
			require.NoError(t, err)
			stop := begin(t, c)
			eventually(t, func() bool { return holds(c) == 3 }, "it has its partitions")
			for n := 0; count(&old) == 0; n++ { // one that began with what is new has begun
				s.publish(t, message("first", fmt.Sprint("first-", n)))
			}
			for n := range 100 {
				s.publish(t, message(fmt.Sprint("old-", n%10), fmt.Sprint("old-", n)))
			}
			s.publish(t, message("slow", "slow"))
			eventually(t, func() bool { _, is := old.Load("slow"); return is && count(&old) > 100 }, "the old ones")

			anew.Store(true)
			s.remake(t, s.name)
			close(slow)
			fresh := *s
			fresh.broker, err = kafka.Open(s.servers) // it has yet to learn of topics
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, fresh.broker.Close(context.Background())) })
			for n := range 10 {
				fresh.publish(t, message("new", fmt.Sprint("new-", n)))
			}
			eventually(t, func() bool { return count(&handled) == 10 }, "the new ones")
			require.NoError(t, stop())
			assert.LessOrEqual(t, highest.Load(), int64(10), "an offset of the old topic")
			assert.Positive(t, highest.Load(), "one of the new topic")
		})
	}
}

// So do dead letters find their topic again.
func TestDeadLettersAreMadeAnew(t *testing.T) {
	t.Parallel()
	s := newTopic(t, startFake(t))
	c, err := NewConsumer(s.servers, "billing", []string{s.name}, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		return "", inbox.Permanent(kerr.InvalidRecord)
	}), silent, hurried, WithDeadLetters(func(string) string { return s.dead }), WithRetry(inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond}))
	require.NoError(t, err)
	stop := begin(t, c)
	s.publish(t, message("a", "1"))
	eventually(t, func() bool { return c.Stats().Forwarded == 1 }, "the first")
	s.remake(t, s.dead)
	s.publish(t, message("a", "2"))
	eventually(t, func() bool { return c.Stats().Forwarded == 2 }, "the second")
	require.NoError(t, stop())
}
