package kafka_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// trio is a cluster of three servers, of which one can be out for the broker under test. Each leads a
// third of the partitions of a topic.
type trio struct {
	*reader

	leaders map[int32]int32 // by partition
	victim  int32           // the id of the server
	topic   string
	ill     func(t *testing.T)
	well    func(t *testing.T)
	dial    func(ctx context.Context, network, address string) (net.Conn, error) // nil = the broker's own
}

const trioPartitions = 6

// trios runs a test with each way in which one server of three is out.
func trios(t *testing.T, test func(t *testing.T, c *trio)) {
	t.Helper()
	t.Parallel()
	for name, out := range map[string]func(*trio, *brokertest.Proxy){
		"refused": func(c *trio, p *brokertest.Proxy) {
			c.ill, c.well = func(t *testing.T) { p.Down(t) }, func(t *testing.T) { p.Up(t) }
		},
		"silent": func(c *trio, p *brokertest.Proxy) {
			c.ill, c.well = func(t *testing.T) { p.BlackHole(t) }, func(t *testing.T) { p.Heal(t) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := startCluster(t, kfake.NumBrokers(3))
			c := newTrio(t, fake.reader, func(t *testing.T, topic string) {
				for p := range int32(trioPartitions) {
					require.NoError(t, fake.fake.MoveTopicPartition(topic, p, p%3))
				}
			})
			through(t, c, out)
			test(t, c)
		})
	}
}

// through puts a proxy between the broker under test and the victim.
func through(t *testing.T, c *trio, out func(*trio, *brokertest.Proxy)) {
	t.Helper()
	known, err := c.admin.ListBrokers(t.Context())
	require.NoError(t, err)
	var upstream string
	for _, server := range known {
		if server.NodeID == c.victim {
			upstream = net.JoinHostPort(server.Host, strconv.Itoa(int(server.Port)))
		}
	}
	proxy := brokertest.StartProxy(t, upstream)
	address := proxy.Addr(t)
	c.dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		if to == upstream {
			to = address
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}
	out(c, proxy)
}

// newTrio makes the topic. The replicas are one of each partition: what is out of the broker's sight is
// not out for the others, but a frozen one would be.
func newTrio(t *testing.T, r *reader, spread func(t *testing.T, topic string)) *trio {
	t.Helper()
	c := &trio{reader: r, topic: r.name("trio"), leaders: map[int32]int32{}}
	answer, err := r.admin.CreateTopics(t.Context(), trioPartitions, 1, nil, c.topic)
	require.NoError(t, err)
	require.NoError(t, answer.Error())
	if spread != nil {
		spread(t, c.topic)
	}
	require.Eventually(t, func() bool {
		known, err := r.admin.ListTopics(t.Context(), c.topic)
		if err != nil || known.Error() != nil || len(known[c.topic].Partitions) != trioPartitions {
			return false
		}
		for _, p := range known[c.topic].Partitions {
			c.leaders[p.Partition] = p.Leader
		}
		return true
	}, patience, 5*time.Millisecond, "the servers know %v", c.topic)
	c.victim = c.leaders[0]
	return c
}

// A load publishes numbered messages as a relay does: what was not confirmed goes again, in the order of
// its key, and other keys go on.
type load struct {
	*kafka.Broker

	topic    string
	keys     []string
	next     map[string]int    // the number of the next message, by key
	place    map[string]string // topic and partition, by key
	failures map[string]int    // by class and scope
	said     map[string]string
}

// call publishes four messages of each key, and reports how many were confirmed.
func (l *load) call(t *testing.T) (confirmed int) {
	t.Helper()
	var msgs []brokers.Message
	for n := range 4 {
		for _, key := range l.keys {
			m := numbered(l.topic, key, l.next[key]+n)
			m.ID = key + "/" + strconv.Itoa(l.next[key]+n)
			msgs = append(msgs, m)
		}
	}
	results := l.Publish(t.Context(), msgs)
	failed := map[string]bool{}
	for i, result := range results {
		key := msgs[i].OrderingKey
		if result.Err != nil {
			failed[key] = true
			kind := classes(results[i : i+1])[0]
			l.failures[kind]++
			l.said[kind] = result.Err.Error()
			continue
		}
		assert.False(t, failed[key], "%s was confirmed although one before it was not", msgs[i].ID)
		place := result.BrokerMessageID[:strings.LastIndexByte(result.BrokerMessageID, ':')]
		if l.place[key] == "" {
			l.place[key] = place
		}
		assert.Equal(t, l.place[key], place, "the partition of %s", key)
		confirmed++
		l.next[key]++
	}
	return confirmed
}

func (c *trio) load(t *testing.T, timeout time.Duration) *load {
	l := &load{
		Broker: open(t, c.servers, kafka.Settings{Timeout: timeout, Dial: c.dial}), topic: c.topic,
		next: map[string]int{}, place: map[string]string{}, failures: map[string]int{}, said: map[string]string{},
	}
	for k := range 24 {
		l.keys = append(l.keys, fmt.Sprint("key-", k))
	}
	return l
}

// One server of three that cannot be reached, is silent or stands still costs the partitions that it
// leads, and nothing else: no attempt, no other key, and no time beyond that in which it is found out. The
// timeout is not to be waited for. Messages without a key go elsewhere, and all is well when it is back.
func TestOneServerIsOut(t *testing.T) {
	trios(t, func(t *testing.T, c *trio) {
		l := c.load(t, 10*time.Minute)
		require.Equal(t, 4*len(l.keys), l.call(t), "%v", l.said)
		c.ill(t)
		for range 10 {
			l.call(t)
		}
		assert.Positive(t, l.failures["unavailable partition"])
		for kind := range l.failures {
			assert.Contains(t, []string{"unavailable partition", "not_sent"}, kind, l.said[kind])
		}
		behind := 0
		for _, key := range l.keys {
			if l.next[key] == 4 {
				behind++
			} else {
				assert.Equal(t, 44, l.next[key], "key %s lost a call", key)
			}
		}
		assert.Positive(t, behind)
		assert.Less(t, behind, len(l.keys))
		var free []brokers.Message
		for n := range 50 {
			free = append(free, numbered(c.topic, "", n))
		}
		for _, result := range l.Publish(t.Context(), free) {
			assert.NoError(t, result.Err, "it has no key, and goes to another partition")
		}

		c.well(t)
		require.Eventually(t, func() bool { return l.call(t) == 4*len(l.keys) }, 2*patience, 5*time.Millisecond, "all keys go on: %v", l.said)
		order := map[string]int{}
		for _, m := range c.received(t, c.topic) {
			if m.OrderingKey == "" {
				continue
			}
			_, number, _ := strings.Cut(m.ID, "/")
			n, err := strconv.Atoi(number)
			require.NoError(t, err)
			if n >= order[m.OrderingKey] { // what was sent once more is there twice
				require.Equal(t, order[m.OrderingKey], n, "the next of key %s", m.OrderingKey)
				order[m.OrderingKey]++
			}
		}
		assert.Equal(t, l.next, order)
	})
}

// Where each partition of a topic is led by a server that is out, it is the destination that is; and where
// no server answers, the broker. Then nothing is remembered: the next question is put to all.
func TestScopeOfAnOutage(t *testing.T) {
	t.Parallel()
	fake := startCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "there", "elsewhere"))
	c := newTrio(t, fake.reader, func(t *testing.T, topic string) {
		for p := range int32(trioPartitions) {
			require.NoError(t, fake.fake.MoveTopicPartition(topic, p, p%3))
		}
	})
	through(t, c, func(c *trio, p *brokertest.Proxy) {
		c.ill, c.well = func(t *testing.T) { p.Down(t) }, func(t *testing.T) { p.Up(t) }
	})
	for p := range int32(2) {
		require.NoError(t, fake.fake.MoveTopicPartition("there", p, c.victim))
		require.NoError(t, fake.fake.MoveTopicPartition("elsewhere", p, (c.victim+1)%3))
	}
	b := open(t, fake.seeds()[c.victim:c.victim+1], kafka.Settings{Timeout: 10 * time.Minute, Dial: c.dial})
	require.Equal(t, []string{""}, classes(b.Publish(t.Context(), []brokers.Message{numbered("elsewhere", "a", 1)})), "it meets the others")
	c.ill(t)
	msgs := []brokers.Message{numbered("there", "a", 1), numbered("elsewhere", "b", 2), numbered("there", "", 3)}
	for range 3 {
		results := b.Publish(t.Context(), msgs)
		assert.Equal(t, []string{"unavailable destination", ""}, classes(results)[:2], "%v", results)
		assert.True(t, brokers.Unanswered(results[0].Err))
		require.ErrorContains(t, results[0].Err, "check that the servers run")
		require.Error(t, results[2].Err)
	}
	c.well(t)
	fake.stop()
	require.Eventually(t, func() bool { return classes(b.Publish(t.Context(), msgs[1:2]))[0] == "unavailable broker" }, patience, 5*time.Millisecond)
}

// A server that answers, but does not confirm a batch, holds up the others for one timeout: theirs are
// confirmed, and the round's end is that of the partitions that it leads.
func TestRoundEndsInPart(t *testing.T) {
	t.Parallel()
	fake := startCluster(t, kfake.NumBrokers(3))
	c := newTrio(t, fake.reader, func(t *testing.T, topic string) {
		for p := range int32(trioPartitions) {
			require.NoError(t, fake.fake.MoveTopicPartition(topic, p, p%3))
		}
	})
	well := make(chan struct{})
	f := fake.fake
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if f.CurrentNode() == c.victim {
			f.SleepControl(func() {
				select {
				case <-well:
				case <-t.Context().Done():
				}
			})
		}
		return nil, nil, false //nolint:nilnil // the fake cluster answers
	})
	l := c.load(t, 2*time.Second)
	for range 2 {
		l.call(t)
	}
	for kind := range l.failures {
		assert.Contains(t, []string{"unavailable partition", "not_sent"}, kind, l.said[kind])
	}
	assert.Contains(t, l.said["unavailable partition"], "the replicas do not confirm in time")
	for _, key := range l.keys {
		assert.Contains(t, []int{0, 8}, l.next[key], key)
	}
	l.call(t)
	assert.Contains(t, l.said["unavailable partition"], "confirms nothing in time: the replicas", "it is left alone, and costs nothing")
	close(well)
	require.Eventually(t, func() bool { return l.call(t) == 4*len(l.keys) }, patience, 5*time.Millisecond, "all keys go on: %v", l.said)
}

// A server that says late that its replicas do not confirm, and nothing after that, has said what is
// wrong.
func TestLateWord(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "there"))
	f, over, asked, requests := c.fake, make(chan struct{}), make(chan struct{}), 0
	askedOnce := sync.OnceFunc(func() { close(asked) })
	f.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if question := request.(*kmsg.MetadataRequest); requests > 0 && question.Topics != nil && len(question.Topics) == 0 {
			askedOnce()
		}
		return nil, nil, false //nolint:nilnil // the fake cluster answers
	})
	f.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		requests++
		if requests > 1 {
			f.SleepControl(func() { <-over })
			return nil, nil, false //nolint:nilnil // the fake cluster answers
		}
		f.SleepControl(func() { // a server that waits is asked whether it is there
			select {
			case <-asked:
			case <-over:
			}
		})
		return answering(request, func([]byte) *kerr.Error { return kerr.RequestTimedOut }), nil, true
	})
	b := open(t, c.seeds(), kafka.Settings{Timeout: 4 * time.Second})
	t.Cleanup(func() { close(over) }) // before the cluster and the broker close
	err := b.Publish(t.Context(), []brokers.Message{numbered("there", "a", 1)})[0].Err
	require.ErrorIs(t, err, kerr.RequestTimedOut)
	require.ErrorContains(t, err, "the replicas do not confirm in time")
}
