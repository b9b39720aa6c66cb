package kafka_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/kafka"
)

// A missing topic is out, alone, until somebody creates it.
func TestMissingTopic(t *testing.T) {
	everywhere(t, 1, func(t *testing.T, c *reader) {
		there, missing := c.name("there"), c.name("missing")
		c.create(t, there)
		b := open(t, c.servers)
		msgs := []brokers.Message{numbered(missing, "a", 1), numbered(there, "b", 2), numbered(missing, "c", 3), numbered("a b", "d", 4)}
		results := b.Publish(t.Context(), msgs)
		assert.Equal(t, []string{"unavailable destination", "", "unavailable destination", "unavailable destination"}, classes(results))
		require.ErrorContains(t, results[0].Err, "create the topic, or let the broker do it (create_destinations)")
		require.ErrorContains(t, b.CheckDestination(t.Context(), missing), "create the topic")
		require.ErrorContains(t, b.CheckDestination(t.Context(), "a b"), "letters, digits")

		c.create(t, missing)
		assert.Equal(t, []string{"", "", ""}, classes(b.Publish(t.Context(), msgs[:3])))
		require.NoError(t, b.CheckDestination(t.Context(), missing))
	})
}

// A topic that is deleted and made anew is another one of the same name: the next call finds it.
func TestTopicIsMadeAnew(t *testing.T) {
	everywhere(t, 1, func(t *testing.T, c *reader) {
		for _, pause := range []bool{false, true} {
			name := c.name(fmt.Sprint("again-", pause))
			c.create(t, name)
			b := open(t, c.servers)
			msgs := []brokers.Message{numbered(name, "a", 1), numbered(name, "a", 2)}
			results := b.Publish(t.Context(), msgs)
			require.Equal(t, []string{"", ""}, classes(results), "%v", results)
			c.remove(t, name)
			if pause {
				assert.Equal(t, "unavailable destination", classes(b.Publish(t.Context(), msgs))[0])
			}
			c.create(t, name)
			results = b.Publish(t.Context(), msgs)
			if results[0].Err != nil {
				require.ErrorContains(t, results[0].Err, "made anew")
				results = b.Publish(t.Context(), msgs)
			}
			assert.Equal(t, []string{"", ""}, classes(results))
			assert.Len(t, c.received(t, name), 2)
		}
	})
}

func TestCreateTopics(t *testing.T) {
	everywhere(t, 3, func(t *testing.T, c *reader) {
		there, one, two := c.name("there"), c.name("x::one"), c.name("x::two")
		c.create(t, there)
		servers, err := c.admin.ListBrokers(t.Context())
		require.NoError(t, err)
		replicas := min(len(servers), 2)
		b := open(t, c.servers, kafka.Settings{CreateDestinations: true, Topics: kafka.TopicSettings{Partitions: 7, Replicas: replicas}})
		msgs := []brokers.Message{numbered(one, "a", 1), numbered(there, "b", 2), numbered(two, "a", 3), numbered(one, "a", 4)}
		require.NoError(t, b.CheckDestination(t.Context(), one), "it will be created")
		assert.Equal(t, []string{"", "", "", ""}, classes(b.Publish(t.Context(), msgs)))
		topics, err := c.admin.ListTopics(t.Context(), kafka.TopicName(one), kafka.TopicName(two))
		require.NoError(t, err)
		for _, topic := range topics {
			assert.Len(t, topic.Partitions, 7, topic.Topic)
			assert.Len(t, topic.Partitions[0].Replicas, replicas, topic.Topic)
		}
		require.Len(t, c.received(t, one), 2)

		defaults := open(t, c.servers, kafka.Settings{CreateDestinations: true})
		assert.Equal(t, []string{""}, classes(defaults.Publish(t.Context(), []brokers.Message{numbered(c.name("y"), "", 1)})))
		topics, err = c.admin.ListTopics(t.Context(), c.name("y"))
		require.NoError(t, err)
		assert.NotEmpty(t, topics[c.name("y")].Partitions)
		assert.NotEqual(t, 7, len(topics[c.name("y")].Partitions))

		many := open(t, c.servers, kafka.Settings{CreateDestinations: true, Topics: kafka.TopicSettings{Replicas: 99}})
		results := many.Publish(t.Context(), []brokers.Message{numbered(c.name("z"), "a", 1), numbered(c.name("z"), "b", 2), numbered(there, "c", 3)})
		assert.Equal(t, []string{"unavailable destination", "not_sent", ""}, classes(results))
		require.ErrorContains(t, results[0].Err, "check the settings of the topics (topics), and the number of servers")
	})
}

// A cluster says that it has created a topic before its servers know it: the call that had it created
// waits for them. The fake's know it at once.
func TestCreatedTopicsAreThere(t *testing.T) {
	t.Parallel()
	c := realCluster(t)
	b := open(t, c.servers, kafka.Settings{CreateDestinations: true, Topics: kafka.TopicSettings{Partitions: 3}})
	for n := range 30 {
		name := c.name(fmt.Sprint("created-", n))
		msgs := []brokers.Message{numbered(name, "a", 1), numbered(name, "b", 2), numbered(name, "a", 3)}
		assert.Equal(t, []string{"", "", ""}, classes(b.Publish(t.Context(), msgs)), "topic %d", n)
	}
}

// What only the server finds too large costs its own batch a second try, and its own message its life.
func TestTooLargeForTheTopic(t *testing.T) {
	everywhere(t, 1, func(t *testing.T, c *reader) {
		limit, small := "20000", c.name("small")
		c.createWith(t, 2, map[string]*string{"max.message.bytes": &limit}, small)
		b := open(t, c.servers, kafka.WithoutCompression(kafka.Settings{}))
		var msgs []brokers.Message
		for i := range 40 {
			msgs = append(msgs, numbered(small, "key-"+strconv.Itoa(i%5), i))
			msgs[i].Payload = make([]byte, 1000) // 40 kB together: no batch of them fits
		}
		msgs[17].Payload = make([]byte, 30_000)
		results := b.Publish(t.Context(), msgs)
		var want []string
		for i := range msgs {
			switch {
			case i == 17:
				want = append(want, "permanent")
			case i > 17 && i%5 == 17%5:
				want = append(want, "not_sent")
			default:
				want = append(want, "")
			}
		}
		assert.Equal(t, want, classes(results))
		require.ErrorContains(t, results[17].Err, "raise max.message.bytes of the topic")
		assert.Len(t, c.received(t, small), 40-5)
	})
}

// A topic that keeps the latest message of each key takes none without a key.
func TestCompactedTopic(t *testing.T) {
	t.Parallel()
	c := realCluster(t) // the fake takes it
	compact, name := "compact", c.name("compacted")
	c.createWith(t, 1, map[string]*string{"cleanup.policy": &compact}, name)
	results := open(t, c.servers).Publish(t.Context(), []brokers.Message{numbered(name, "a", 1), numbered(name, "", 2), numbered(name, "a", 3)})
	assert.Equal(t, []string{"", "permanent", ""}, classes(results))
	require.ErrorContains(t, results[1].Err, "compact needs a key")
	scope, refused := brokers.Refusal(results[1].Err)
	assert.True(t, refused, "it may be the topic that was made so")
	assert.Equal(t, brokers.ScopeDestination, scope)
	assert.Len(t, c.received(t, name), 2)
}

// Attributes that do not fit are left out, and named.
func TestOmitted(t *testing.T) {
	everywhere(t, 1, func(t *testing.T, c *reader) {
		there := c.name("there")
		c.create(t, there)
		b := open(t, c.servers, kafka.Settings{MaxMessageBytes: 16 << 10})
		m := numbered(there, "a", 1)
		m.Attributes = []brokers.Attribute{{Name: "large", Value: strings.Repeat("x", 20_000)}, {Name: "small", Value: "y"}}
		results := b.Publish(t.Context(), []brokers.Message{m})
		require.NoError(t, results[0].Err)
		assert.Equal(t, []string{"large"}, results[0].Omitted)
		assert.True(t, strings.HasPrefix(results[0].BrokerMessageID, there+":"), results[0].BrokerMessageID)
		got := c.received(t, there)
		assert.Equal(t, m.Attributes[1:], got[0].Attributes)

		m.Type = strings.Repeat("t", 20_000)
		assert.Equal(t, []string{"permanent"}, classes(b.Publish(t.Context(), []brokers.Message{m})))
	})
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	const user, password = "relay", "hush"
	test := func(t *testing.T, seed, refusal string) {
		b := open(t, []string{seed}, kafka.Settings{SASL: kafka.SASL{Mechanism: "PLAIN", Username: user, Password: password}})
		results := b.Publish(t.Context(), []brokers.Message{numbered("open", "a", 1), numbered("readable", "b", 2), numbered("hidden", "c", 3)})
		assert.Equal(t, []string{"", "unavailable destination", "unavailable destination"}, classes(results))
		require.ErrorContains(t, results[1].Err, "grant the user Write and Describe")
		require.ErrorContains(t, results[2].Err, "grant the user Write and Describe")
		require.ErrorContains(t, b.CheckDestination(t.Context(), "hidden"), "grant the user Write and Describe")
		require.NoError(t, b.CheckDestination(t.Context(), "readable"))

		creating := open(t, []string{seed}, kafka.Settings{SASL: kafka.SASL{Mechanism: "PLAIN", Username: user, Password: password}, CreateDestinations: true})
		results = creating.Publish(t.Context(), []brokers.Message{numbered("missing", "a", 1), numbered("open", "b", 2)})
		assert.Equal(t, []string{"unavailable destination", ""}, classes(results))

		for _, stranger := range []struct {
			*kafka.Broker

			says string
		}{
			{open(t, []string{seed}), "it talks TLS, or SASL"},
			{open(t, []string{seed}, kafka.Settings{SASL: kafka.SASL{Mechanism: "PLAIN", Username: user, Password: "wrong"}}), refusal},
			{open(t, []string{seed}, kafka.Settings{SASL: kafka.SASL{Mechanism: "SCRAM-SHA-256", Username: user, Password: password}}), refusal},
		} {
			err := stranger.Ping(t.Context())
			class, scope := brokers.Classify(err)
			assert.Equal(t, []string{"unavailable", "broker"}, []string{string(class), string(scope)}, stranger.says)
			require.ErrorContains(t, err, stranger.says)
			assert.NotContains(t, err.Error(), password)
		}
	}
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		allow := func(topic string, operation kmsg.ACLOperation) kfake.ACL {
			return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
		}
		test(t, startCluster(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "open", "readable", "hidden"),
			kfake.User("PLAIN", user, password, allow("open", kmsg.ACLOperationWrite), allow("readable", kmsg.ACLOperationDescribe))).seeds()[0], "the server hung up") // without a word, unlike Kafka
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	defer server.Close()
	secured := startCluster(t, kfake.NumBrokers(1), kfake.TLS(server.TLS.Clone()), kfake.SeedTopics(1, "there"))
	plain := httptest.NewServer(nil)
	defer plain.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	known := kafka.Settings{TLSConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com", MinVersion: tls.VersionTLS12}}

	assert.Equal(t, []string{""}, classes(open(t, secured.seeds(), known).Publish(t.Context(), []brokers.Message{numbered("there", "a", 1)})))
	for says, b := range map[string]*kafka.Broker{
		"name the servers' certificate authority (tls.ca_file)": open(t, secured.seeds(), kafka.Settings{TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}),
		"it talks TLS, or SASL, or is no Kafka":                 open(t, secured.seeds()),
		"the port does not talk TLS":                            open(t, []string{plain.Listener.Addr().String()}, known),
	} {
		results := b.Publish(t.Context(), []brokers.Message{numbered("there", "a", 1), numbered("there", "b", 2)})
		assert.Equal(t, []string{"unavailable broker", "not_sent"}, classes(results), says)
		require.ErrorContains(t, results[0].Err, says)
		require.ErrorContains(t, b.Ping(t.Context()), says)
	}
}

// answer answers what is published with an error, for as long as that is so.
func (c *cluster) answer(err *kerr.Error, so *atomic.Bool) {
	c.fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		return answering(request, func([]byte) *kerr.Error { return err }), nil, so.Load()
	})
}

// The last word of a server stands in the error, with its class and what to do, however the client has
// repeated the batch: it ends with words of its own.
func TestLastCodeIsKept(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		*kerr.Error

		class, says string
	}{
		{kerr.UnknownServerError, "unavailable destination", "see the log of the partition's leader"},
		{kerr.RequestTimedOut, "unavailable destination", "the replicas do not confirm in time"},
		{kerr.ReplicaNotAvailable, "unavailable destination", "when the partition has a leader"},
		{kerr.NotEnoughReplicas, "unavailable destination", "lower min.insync.replicas"},
		{kerr.NotEnoughReplicasAfterAppend, "unavailable destination", "lower min.insync.replicas"},
		{kerr.OutOfOrderSequenceNumber, "unavailable destination", "the next call begins with a new one"},
		{kerr.InvalidProducerEpoch, "unavailable destination", "the next call begins with a new one"},
		{kerr.InvalidProducerIDMapping, "unavailable destination", "the next call begins with a new one"},
		{kerr.ConcurrentTransactions, "unavailable destination", "the next call begins with a new one"},
		{kerr.UnknownProducerID, "unavailable destination", "the next call begins with a new one"},
		{kerr.LogDirNotFound, "unavailable destination", "a disk of the partition's leader is offline"},
		{kerr.ListenerNotFound, "unavailable destination", "the same listeners"},
		{kerr.OffsetNotAvailable, "unavailable destination", "when the partition has a leader"},
		{kerr.MessageTooLarge, "permanent destination", "raise max.message.bytes"},
		{kerr.RecordListTooLarge, "permanent destination", "raise segment.bytes"},
		{kerr.InvalidRecord, "permanent destination", "compact needs a key"},
		{kerr.GroupIDNotFound, "retryable destination", "see the log of the partition's leader"},
	} {
		t.Run(test.Message, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "ill"))
			var ill atomic.Bool
			ill.Store(true)
			c.answer(test.Error, &ill)
			b := open(t, c.seeds(), kafka.Settings{Timeout: 2 * time.Second})
			msgs := []brokers.Message{numbered("ill", "a", 1)}
			results := b.Publish(t.Context(), msgs)
			class := classes(results)[0]
			if scope, refused := brokers.Refusal(results[0].Err); refused {
				class += " " + string(scope)
			}
			assert.Equal(t, test.class, class, "%v", results[0].Err)
			require.ErrorIs(t, results[0].Err, test.Error)
			require.ErrorContains(t, results[0].Err, test.says)
			ill.Store(false)
			assert.Equal(t, []string{""}, classes(b.Publish(t.Context(), msgs)))
		})
	}
}

// A server that does not say what went wrong may have taken a batch: none of it counts as not sent.
func TestUnknownServerError(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "ill"))
	var ill atomic.Bool
	ill.Store(true)
	c.answer(kerr.UnknownServerError, &ill)
	b := open(t, c.seeds())
	msgs := []brokers.Message{numbered("ill", "a", 1), numbered("ill", "a", 2)}
	assert.Equal(t, []string{"unavailable destination", "unavailable destination"}, classes(b.Publish(t.Context(), msgs)))
	ill.Store(false)
	assert.Equal(t, []string{"", ""}, classes(b.Publish(t.Context(), msgs)))
}

// A client that got no number as a producer keeps to that error: it is not used again.
func TestNumberIsRefused(t *testing.T) {
	t.Parallel()
	for _, reason := range []*kerr.Error{kerr.UnknownServerError, kerr.InvalidRequest, kerr.ClusterAuthorizationFailed, kerr.RequestTimedOut} {
		c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "there"))
		var ill atomic.Bool
		ill.Store(true)
		c.fake.ControlKey(int16(kmsg.InitProducerID), func(request kmsg.Request) (kmsg.Response, error, bool) {
			c.fake.KeepControl()
			answer := request.ResponseKind().(*kmsg.InitProducerIDResponse)
			answer.ErrorCode = reason.Code
			return answer, nil, ill.Load()
		})
		b := open(t, c.seeds())
		msgs := []brokers.Message{numbered("there", "a", 1)}
		require.ErrorIs(t, b.Publish(t.Context(), msgs)[0].Err, reason)
		ill.Store(false)
		assert.Equal(t, []string{""}, classes(b.Publish(t.Context(), msgs)), "%v", reason)
	}
}

// What is said of a partition's leader where a topic is asked for is said of the topic.
func TestTopicWithoutLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "there"))
	b := open(t, c.seeds())
	require.NoError(t, b.CheckDestination(t.Context(), "there"))
	c.fake.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		answer, topic := request.ResponseKind().(*kmsg.MetadataResponse), kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.ErrorCode = kmsg.StringPtr("there"), kerr.LeaderNotAvailable.Code
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	err := b.CheckDestination(t.Context(), "there")
	require.ErrorIs(t, err, kerr.LeaderNotAvailable)
	_, scope := brokers.Classify(err)
	assert.Equal(t, brokers.ScopeDestination, scope)
}

// A partition without enough replicas is its topic's matter alone, and passes.
func TestNotEnoughReplicas(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "ill", "well"))
	var (
		ill   atomic.Bool
		tries atomic.Int32
	)
	ill.Store(true)
	c.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		tries.Add(1)
		return nil, nil, false //nolint:nilnil // the next one answers
	})
	c.answer(kerr.NotEnoughReplicas, &ill)
	b := open(t, c.seeds())
	msgs := []brokers.Message{numbered("ill", "a", 1), numbered("ill", "a", 2)}
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, []string{"unavailable destination", "unavailable destination"}, classes(results), "they were sent several times")
	require.ErrorContains(t, results[0].Err, "lower min.insync.replicas of the topic")
	assert.EqualValues(t, 1+8, tries.Load(), "the client repeats as often as documented")

	ill.Store(false)
	assert.Equal(t, []string{"", ""}, classes(b.Publish(t.Context(), msgs)))
	assert.Len(t, c.received(t, "ill"), 2)
}
