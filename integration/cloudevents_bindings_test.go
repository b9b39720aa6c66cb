package integration_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/nats"
)

// What a plain client of a broker finds beside a message, and in it.
type wireMessage struct {
	header  func(name string) string
	payload []byte
}

// CloudEvents that brokers were sent are events to consumers that read them with the SDK's bindings. These are
// modules of their own, with other clients; their rules for the mode of a message, as of v2.16.2, are here.
func TestSDKBindingsKnowTheMode(t *testing.T) {
	t.Parallel()
	payload, err := os.ReadFile("../envelope/testdata/aggregate_full.cloudevents.listed.json")
	require.NoError(t, err)
	var want event.Event
	require.NoError(t, json.Unmarshal(payload, &want))
	m := brokers.Message{
		ID: want.ID(), Destination: "ordering::order", Type: want.Type(), OrderingKey: "ordering::order-42", CorrelationID: "checkout-9",
		ContentType: event.ApplicationCloudEventsJSON, Payload: payload, Attributes: []brokers.Attribute{{Name: "region", Value: "eu"}},
	}
	for name, c := range map[string]struct {
		send func(t *testing.T, m brokers.Message) wireMessage
		mode func(header func(string) string) (binding.Encoding, format.Format)
	}{
		// protocol/kafka_sarama/v2/message.go, NewMessage
		"Kafka": {overKafka, func(header func(string) string) (binding.Encoding, format.Format) {
			specs := spec.WithPrefix("ce_")
			if f := format.Lookup(header("content-type")); f != nil {
				return binding.EncodingStructured, f
			} else if specs.Version(header(specs.PrefixedSpecVersionName())) != nil {
				return binding.EncodingBinary, nil
			}
			return binding.EncodingUnknown, nil
		}},
		// protocol/pubsub/v2/message.go, NewMessage
		"PubSub": {overPubSub, func(header func(string) string) (binding.Encoding, format.Format) {
			specs := spec.WithPrefix("ce-")
			if s := header("Content-Type"); format.IsFormat(s) {
				return binding.EncodingStructured, format.Lookup(s)
			} else if header(specs.PrefixedSpecVersionName()) != "" {
				return binding.EncodingBinary, nil
			}
			return binding.EncodingUnknown, nil
		}},
		// protocol/nats_jetstream/v2/message.go, NewMessage
		"NATS": {overNATS, func(header func(string) string) (binding.Encoding, format.Format) {
			if header(spec.WithPrefix("ce-").PrefixedSpecVersionName()) != "" {
				return binding.EncodingBinary, nil
			}
			return binding.EncodingStructured, format.JSON
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.send(t, m)
			mode, form := c.mode(got.header)
			require.Equal(t, binding.EncodingStructured, mode, "not %s", mode)
			require.NotNil(t, form)
			var e event.Event
			require.NoError(t, form.Unmarshal(got.payload, &e))
			require.NoError(t, e.Validate())
			require.Equal(t, want, e)
		})
	}
}

// send has an adapter publish a message.
func send(t *testing.T, b brokers.Broker, m brokers.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, b.Publish(ctx, []brokers.Message{m})[0].Err)
}

func overKafka(t *testing.T, m brokers.Message) wireMessage {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "ordering.order"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	b, err := kafka.Open(kafka.Settings{BootstrapServers: strings.Join(cluster.ListenAddrs(), ",")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	send(t, b, m)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("ordering.order"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	fetches := client.PollFetches(t.Context())
	require.NoError(t, fetches.Err())
	require.Len(t, fetches.Records(), 1)
	record := fetches.Records()[0]
	return wireMessage{payload: record.Value, header: func(name string) string {
		for _, header := range record.Headers {
			if header.Key == name {
				return string(header.Value)
			}
		}
		return ""
	}}
}

func overPubSub(t *testing.T, m brokers.Message) wireMessage {
	t.Helper()
	fake := pstest.NewServer()
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	_, err := fake.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/acme/topics/ordering.order"})
	require.NoError(t, err)
	_, err = fake.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: "projects/acme/subscriptions/orders", Topic: "projects/acme/topics/ordering.order"})
	require.NoError(t, err)
	client, err := pubsub.NewClient(t.Context(), "acme", append(gcppubsub.ClientOptions(), option.WithEndpoint(fake.Addr), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := gcppubsub.New(client, gcppubsub.Settings{})
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	send(t, b, m)
	pulled, err := client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: "projects/acme/subscriptions/orders", MaxMessages: 1})
	require.NoError(t, err)
	require.Len(t, pulled.GetReceivedMessages(), 1)
	got := pulled.GetReceivedMessages()[0].GetMessage()
	return wireMessage{payload: got.GetData(), header: func(name string) string { return got.GetAttributes()[name] }}
}

func overNATS(t *testing.T, m brokers.Message) wireMessage {
	t.Helper()
	node, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	require.NoError(t, err)
	node.Start()
	t.Cleanup(func() {
		node.Shutdown()
		node.WaitForShutdown()
	})
	require.True(t, node.ReadyForConnections(time.Minute))
	conn, err := natsclient.Connect(node.ClientURL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.order"}})
	require.NoError(t, err)
	b, err := nats.Open(nats.Settings{URL: adapter.Secret(node.ClientURL())})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	send(t, b, m)
	got, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	return wireMessage{payload: got.Data, header: got.Header.Get}
}
