package pubsubconsumer

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

// emulator is Google's, in a project of this test's own, behind a front that notes what is confirmed:
// the emulator itself does not say.
type emulator struct {
	pubsubpb.UnimplementedPublisherServer
	pubsubpb.UnimplementedSubscriberServer

	addr                 string // of the front
	publisher            pubsubpb.PublisherClient
	subscriber           pubsubpb.SubscriberClient
	topic, dead, letters string
	subscription         string

	mu        sync.Mutex
	published map[string]bool   // messages of the topic, by id
	handedOut map[string]string // ids of messages, by the id of their delivery
	confirmed map[string]bool
	seen      []consumertest.DeadLetter
}

func emulatorAddress(t *testing.T) string {
	t.Helper()
	address := os.Getenv("FANOUT_TEST_PUBSUB")
	if address == "" {
		t.Skip("FANOUT_TEST_PUBSUB names no emulator")
	}
	return address
}

func newEmulator(t *testing.T) *emulator {
	t.Helper()
	conn, err := grpc.NewClient(emulatorAddress(t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	own := "projects/" + project + "-" + strings.ToLower(rand.Text()[:10])
	e := &emulator{
		publisher: pubsubpb.NewPublisherClient(conn), subscriber: pubsubpb.NewSubscriberClient(conn),
		topic: own + "/topics/orders", dead: own + "/topics/orders-dead", letters: own + "/subscriptions/letters", subscription: own + "/subscriptions/billing",
		published: map[string]bool{}, handedOut: map[string]string{}, confirmed: map[string]bool{},
	}
	for subscription, topic := range map[string]string{e.subscription: e.topic, e.letters: e.dead} {
		_, err := e.publisher.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
		require.NoError(t, err)
		_, err = e.subscriber.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name: subscription, Topic: topic, EnableMessageOrdering: true, AckDeadlineSeconds: 10,
		})
		require.NoError(t, err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	front := grpc.NewServer()
	pubsubpb.RegisterPublisherServer(front, e)
	pubsubpb.RegisterSubscriberServer(front, e)
	go func() { _ = front.Serve(listener) }()
	t.Cleanup(front.Stop)
	e.addr = listener.Addr().String()
	return e
}

// Publish passes a request on.
func (e *emulator) Publish(ctx context.Context, request *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	return e.publisher.Publish(context.WithoutCancel(ctx), request)
}

// GetSubscription passes a request on.
func (e *emulator) GetSubscription(ctx context.Context, request *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	return e.subscriber.GetSubscription(context.WithoutCancel(ctx), request)
}

// ModifyAckDeadline passes a request on.
func (e *emulator) ModifyAckDeadline(ctx context.Context, request *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	return e.subscriber.ModifyAckDeadline(context.WithoutCancel(ctx), request)
}

// Acknowledge passes a request on, and notes what it confirms.
func (e *emulator) Acknowledge(ctx context.Context, request *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	answer, err := e.subscriber.Acknowledge(context.WithoutCancel(ctx), request) // it has arrived, whatever becomes of the answer
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, id := range request.GetAckIds() {
			e.confirmed[e.handedOut[id]] = true
		}
	}
	return answer, err
}

// StreamingPull passes messages on, and notes them: one that comes again was not confirmed. A stream
// that breaks is ended politely at the emulator: of one that is broken off it never learns (0.8.20), and
// goes on to hand messages out to it.
func (e *emulator) StreamingPull(down pubsubpb.Subscriber_StreamingPullServer) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(down.Context()))
	defer cancel()
	up, err := e.subscriber.StreamingPull(ctx)
	if err != nil {
		return err
	}
	go func() {
		for {
			request, err := down.Recv()
			if err != nil || up.Send(request) != nil {
				_ = up.CloseSend()
				return
			}
		}
	}()
	var broken error
	for {
		response, err := up.Recv()
		if errors.Is(err, io.EOF) {
			return broken
		}
		if err != nil {
			return err
		}
		e.mu.Lock()
		for _, got := range response.GetReceivedMessages() {
			id := got.GetMessage().GetMessageId()
			e.handedOut[got.GetAckId()] = id
			delete(e.confirmed, id)
		}
		e.mu.Unlock()
		if broken == nil {
			broken = down.Send(response)
		}
	}
}

func (e *emulator) source(t *testing.T) *consumertest.Source {
	t.Helper()
	proxy := brokertest.StartProxy(t, e.addr)
	return &consumertest.Source{
		Publish: func(t *testing.T, messages ...consumertest.Message) {
			t.Helper()
			for _, m := range messages {
				answer, err := e.publisher.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: e.topic, Messages: []*pubsubpb.PubsubMessage{
					{Data: m.Payload, Attributes: map[string]string{"id": m.ID, "type": m.Type}, OrderingKey: m.Key},
				}})
				require.NoError(t, err)
				e.mu.Lock()
				e.published[answer.GetMessageIds()[0]] = true
				e.mu.Unlock()
			}
		},
		PublishForeign: func(t *testing.T, key string, payload []byte, attributes map[string]string) {
			t.Helper()
			if len(payload) == 0 && len(attributes) == 0 { // which Pub/Sub refuses
				attributes = map[string]string{"content-type": "text/plain"}
			}
			answer, err := e.publisher.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: e.topic, Messages: []*pubsubpb.PubsubMessage{
				{Data: payload, Attributes: attributes, OrderingKey: key},
			}})
			require.NoError(t, err)
			e.mu.Lock()
			e.published[answer.GetMessageIds()[0]] = true
			e.mu.Unlock()
		},
		Consumer: func(t *testing.T, handler inbox.Handler, settings *consumertest.Settings) consumertest.Consumer {
			t.Helper()
			addr := e.addr
			if settings.ThroughNetwork {
				addr = proxy.Addr(t)
			}
			config := Config{ConsumerConfig: settings.ConsumerConfig}
			if settings.HasDeadLetters {
				config.DeadLetters = inbox.Always(e.dead)
			}
			c, err := NewConsumer(newClient(t, addr), e.subscription, handler, config)
			require.NoError(t, err)
			c.pace.probe, c.pace.grace = 20*time.Millisecond, time.Second
			return c
		},
		Unconfirmed: func(*testing.T) (n int) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for id := range e.published {
				if !e.confirmed[id] {
					n++
				}
			}
			return n
		},
		DeadLetters: e.deadLetters,
		Network:     proxy,
		Child:       e.addr + " " + e.subscription,
	}
}

// deadLetters are the messages of the topic of dead letters.
func (e *emulator) deadLetters(t *testing.T) []consumertest.DeadLetter {
	t.Helper()
	for {
		answer, err := e.subscriber.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: e.letters, MaxMessages: 100, ReturnImmediately: true, //nolint:staticcheck // it is what a look is
		})
		require.NoError(t, err)
		if len(answer.GetReceivedMessages()) == 0 {
			return e.seen
		}
		var acks []string
		for _, got := range answer.GetReceivedMessages() {
			m := got.GetMessage()
			e.seen = append(e.seen, consumertest.DeadLetter{
				ID: m.GetAttributes()["id"], Key: m.GetOrderingKey(), Payload: m.GetData(),
				Reason: m.GetAttributes()[inbox.FieldDeadLetterReason], Attempts: m.GetAttributes()[inbox.FieldDeadLetterAttempts],
			})
			acks = append(acks, got.GetAckId())
		}
		_, err = e.subscriber.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: e.letters, AckIds: acks})
		require.NoError(t, err)
	}
}
