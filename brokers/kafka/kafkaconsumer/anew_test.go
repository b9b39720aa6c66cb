package kafkaconsumer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
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

	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/inbox"
)

// remake deletes topics and makes them anew at once, and waits until the servers know that.
func (s *topic) remake(t *testing.T, names ...string) {
	t.Helper()
	before, err := s.admin.ListTopics(t.Context(), names...)
	require.NoError(t, err)
	_, err = s.admin.DeleteTopics(t.Context(), names...)
	require.NoError(t, err)
	s.create(t, 3, nil, names...)
	eventually(t, func() bool {
		after, err := s.admin.ListTopics(t.Context(), names...)
		if err != nil || after.Error() != nil {
			return false
		}
		for name, topic := range after {
			if topic.ID == before[name].ID {
				return false
			}
		}
		return true
	}, "the servers know that they are new")
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
// committed to it: of a message that was in progress, or of a partition that is no more.
func TestTopicIsMadeAnew(t *testing.T) {
	t.Parallel()
	for n, newOnly := range []bool{false, true} {
		t.Run(fmt.Sprint("Fake", n), func(t *testing.T) {
			t.Parallel()
			fake := newFake(t)
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
			newTopic(t, fake.ListenAddrs()).madeAnew(t, newOnly, func() { anew.Store(true) })
			assert.LessOrEqual(t, highest.Load(), int64(10), "an offset of the old topic")
			assert.Positive(t, highest.Load(), "one of the new topic")
		})
		t.Run(fmt.Sprint("Real", n), func(t *testing.T) {
			t.Parallel()
			s := newTopic(t, realServers(t))
			s.madeAnew(t, newOnly, func() {})
			assert.Zero(t, s.unconfirmed(t), "an offset of the old topic")
		})
	}
}

// madeAnew makes a topic anew while it is consumed.
func (s *topic) madeAnew(t *testing.T, newOnly bool, anew func()) {
	t.Helper()
	var old, handled sync.Map
	count := func(of *sync.Map) (n int) { of.Range(func(any, any) bool { n++; return true }); return n }
	slow := make(chan struct{})
	c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
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
	}), hurried(Config{NewOnly: newOnly}))
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

	// All but the slow one is done and committed: what is committed from here on is of the new topic.
	eventually(t, func() bool {
		return c.Stats().Claimed == 1 && len(done(c.running.Load().held(), func(string) bool { return true })) == 0
	}, "it is committed")
	anew()
	s.remake(t, s.name)
	close(slow)
	fresh := *s
	fresh.broker, err = kafka.Open(kafka.Settings{BootstrapServers: strings.Join(s.servers, ",")}) // it has yet to learn of topics
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, fresh.broker.Close(context.Background())) })
	for n := range 10 {
		fresh.publish(t, message("new", fmt.Sprint("new-", n)))
	}
	eventually(t, func() bool { return count(&handled) == 10 }, "the new ones")
	require.NoError(t, stop())
}

// So do dead letters find their topic again.
func TestDeadLettersAreMadeAnew(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
			return "", inbox.Permanent(kerr.InvalidRecord)
		}), hurried(Config{ConsumerConfig: inbox.ConsumerConfig{
			Retry: inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond}, DeadLetters: inbox.Always(s.dead),
		}}))
		require.NoError(t, err)
		stop := begin(t, c)
		s.publish(t, message("a", "1"))
		eventually(t, func() bool { return c.Stats().Forwarded == 1 }, "the first")
		s.remake(t, s.dead)
		s.publish(t, message("a", "2"))
		eventually(t, func() bool { return c.Stats().Forwarded == 2 }, "the second")
		require.NoError(t, stop())
	})
}

// warnings counts what is logged of topics that were made anew.
type warnings struct{ n *atomic.Int64 }

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w warnings) WithGroup(string) slog.Handler            { return w }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "topic made anew" {
		w.n.Add(1)
	}
	return nil
}

func counting() (*slog.Logger, *atomic.Int64) {
	n := new(atomic.Int64)
	return slog.New(warnings{n}), n
}

// What is in progress of another topic stays in progress, and stays where the group is to go on, although
// none of it is done; and a topic that is missing holds nothing up.
func TestOtherTopicsGoOn(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		a, b, missing := newTopic(t, servers), newTopic(t, servers), newTopic(t, servers)
		log, anew := counting()
		var healed atomic.Bool
		var tries, handledOfA atomic.Int64
		var waits, handledOfB sync.Map
		c, err := NewConsumer(servers, a.group, []string{a.name, b.name, missing.name}, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
			switch {
			case m.Source == a.name:
				handledOfA.Add(1)
			case healed.Load():
				handledOfB.Store(m.ID, true)
			default:
				waits.Store(m.ID, true)
				tries.Add(1)
				return "", inbox.Unavailable(kerr.InvalidRecord)
			}
			return inbox.Handled, nil
		}),
			hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Log: log, Retry: inbox.Retry{BaseDelay: 20 * time.Millisecond, MaxDelay: 20 * time.Millisecond}}, NewOnly: true}))
		require.NoError(t, err)
		stop := begin(t, c)
		eventually(t, func() bool { return holds(c) == 9 }, "it has its partitions")
		for n := 0; tries.Load() == 0; n++ {
			b.publish(t, message("b", fmt.Sprint(n)))
		}
		missing.remove(t, missing.name)
		a.remake(t, a.name)
		eventually(t, func() bool { return anew.Load() == 1 }, "it is seen")
		for n := 0; handledOfA.Load() == 0; n++ {
			a.publish(t, message("a", fmt.Sprint(n)))
		}
		healed.Store(true)
		eventually(t, func() bool {
			all := true
			waits.Range(func(id, _ any) bool {
				_, is := handledOfB.Load(id)
				all = all && is
				return all
			})
			return all
		}, "those of the other topic")
		require.NoError(t, stop())
	})
}

// A group that began with what is new has its offsets from then on: what comes to a partition before
// anything is done there is not lost when the partition moves.
func TestNewOnlyKeepsItsBeginning(t *testing.T) {
	somewhere(t, func(t *testing.T, servers []string) {
		s := newTopic(t, servers)
		s.publish(t, message("old", "old"))
		var healed atomic.Bool
		var tries, wrong atomic.Int64
		var handled sync.Map
		open := func() *Consumer {
			c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
				if m.ID == "old" {
					wrong.Add(1)
				}
				if !healed.Load() {
					tries.Add(1)
					return "", inbox.Unavailable(kerr.InvalidRecord)
				}
				handled.Store(m.ID, true)
				return inbox.Handled, nil
			}),
				hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Retry: inbox.Retry{BaseDelay: 20 * time.Millisecond, MaxDelay: 20 * time.Millisecond}}, NewOnly: true}))
			require.NoError(t, err)
			return c
		}
		first := open()
		stopFirst := begin(t, first)
		for n := 0; tries.Load() == 0; n++ { // it has begun
			s.publish(t, message("first", fmt.Sprint("first-", n)))
		}
		for n := range 30 {
			s.publish(t, message(fmt.Sprint("key-", n), fmt.Sprint(n)))
		}
		eventually(t, func() bool { return first.Stats().Received > 30 }, "nothing of it is done")
		eventually(t, func() bool {
			offsets, err := s.admin.FetchOffsets(t.Context(), s.group)
			return err == nil && len(offsets.Offsets()[s.name]) == 3
		}, "the group has offsets all the same")
		second := open()
		stopSecond := begin(t, second)
		eventually(t, func() bool { return holds(second) > 0 }, "partitions move")
		healed.Store(true)
		eventually(t, func() bool {
			n := 0
			handled.Range(func(any, any) bool { n++; return true })
			return n > 30
		}, "all are handled")
		require.NoError(t, stopFirst())
		require.NoError(t, stopSecond())
		assert.Zero(t, wrong.Load(), "what was there before")
	})
}

// ids has the fake answer questions for a topic alone with an id of the caller's; nil = its own. It is
// told which question that is.
func (s *topic) ids(t *testing.T, fake *kfake.Cluster, id func(n int64) *[16]byte) {
	t.Helper()
	known, err := s.admin.Metadata(t.Context(), s.name)
	require.NoError(t, err)
	var asked atomic.Int64
	fake.ControlKey(int16(kmsg.Metadata), func(question kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		topics := question.(*kmsg.MetadataRequest).Topics
		if len(topics) != 1 || topics[0].Topic == nil || *topics[0].Topic != s.name {
			return nil, nil, false //nolint:nilnil // that is how kfake is told to answer by itself
		}
		other := id(asked.Add(1))
		if other == nil {
			return nil, nil, false //nolint:nilnil // so is this
		}
		answer := question.ResponseKind().(*kmsg.MetadataResponse)
		answer.ControllerID = known.Controller
		for _, server := range known.Brokers {
			told := kmsg.NewMetadataResponseBroker()
			told.NodeID, told.Host, told.Port = server.NodeID, server.Host, server.Port
			answer.Brokers = append(answer.Brokers, told)
		}
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.TopicID = kmsg.StringPtr(s.name), *other
		for _, partition := range known.Topics[s.name].Partitions {
			told := kmsg.NewMetadataResponseTopicPartition()
			told.Partition, told.Leader, told.LeaderEpoch, told.Replicas, told.ISR = partition.Partition, partition.Leader, partition.LeaderEpoch, partition.Replicas, partition.ISR
			topic.Partitions = append(topic.Partitions, told)
		}
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
}

// The client asks for itself: when a server that is behind tells it of the topic that was, it finds out
// when it reads.
func TestClientHeardOfTheOldTopic(t *testing.T) {
	t.Parallel()
	for wrong := int64(1); wrong <= 3; wrong++ {
		t.Run(fmt.Sprint("question ", wrong), func(t *testing.T) {
			t.Parallel()
			fake := newFake(t)
			s := newTopic(t, fake.ListenAddrs())
			s.publish(t, message("k", "1"))
			s.ids(t, fake, func(n int64) *[16]byte {
				if n == wrong {
					return &[16]byte{1, 2, 3}
				}
				return nil
			})
			c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{}))
			require.NoError(t, err)
			stop := begin(t, c)
			eventually(t, func() bool { return c.Stats().Handled > 0 }, "it is handled")
			require.NoError(t, stop())
		})
	}
}

// A cluster that learns to tell topics apart has not made them anew.
func TestIdsAppear(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := newTopic(t, fake.ListenAddrs())
	var knows atomic.Bool
	var asked atomic.Int64
	s.ids(t, fake, func(int64) *[16]byte {
		if !knows.Load() {
			return &[16]byte{}
		}
		asked.Add(1)
		return nil
	})
	log, anew := counting()
	c, err := NewConsumer(s.servers, s.group, []string{s.name}, handler, hurried(Config{ConsumerConfig: inbox.ConsumerConfig{Log: log}}))
	require.NoError(t, err)
	stop := begin(t, c)
	eventually(t, func() bool { return holds(c) == 3 }, "it has its partitions")
	knows.Store(true)
	eventually(t, func() bool { return asked.Load() > 20 }, "it looks")
	require.NoError(t, stop())
	assert.Zero(t, anew.Load())
}

// While nobody says whether a topic is still the one that it was, nothing is committed to it.
func TestNoCommitUnchecked(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	var silence atomic.Bool
	var refused, commits atomic.Int64
	fake.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if silence.Load() {
			refused.Add(1)
			return nil, io.ErrUnexpectedEOF, true
		}
		return nil, nil, false //nolint:nilnil // that is how kfake is told to answer by itself
	})
	fake.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		commits.Add(1)
		return nil, nil, false //nolint:nilnil // so is this
	})
	s := newTopic(t, fake.ListenAddrs())
	begun, proceed := make(chan struct{}, 100), make(chan struct{})
	c, err := NewConsumer(s.servers, s.group, []string{s.name}, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		begun <- struct{}{} // again where the group gave it up
		<-proceed
		return inbox.Handled, nil
	}), hurried(Config{Client: []kgo.Opt{kgo.RequestRetries(1)}}))
	require.NoError(t, err)
	stop := begin(t, c)
	s.publish(t, message("k", "1"))
	<-begun
	silence.Store(true)
	close(proceed)
	eventually(t, func() bool { return c.Stats().Handled == 1 }, "it is done")
	before := refused.Load()
	eventually(t, func() bool { return refused.Load() > before+20 }, "it asks in vain")
	assert.Zero(t, commits.Load())
	silence.Store(false)
	eventually(t, func() bool { return commits.Load() > 0 }, "it is committed")
	require.NoError(t, stop())
}
