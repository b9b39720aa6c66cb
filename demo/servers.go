package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
)

// servers are the three brokers, in this process: the internal one speaks the Redis protocol, the
// partner's is Google's own Pub/Sub fake, and the carrier has an endpoint.
type servers struct {
	redis *miniredis.Miniredis
	asks  *redis.Client // as anybody can who looks at it

	carrier *endpoint

	pubsub  *pstest.Server
	address string

	mu      sync.Mutex
	grpc    *grpc.Server // nil while the partner is down
	redisUp bool

	sending sync.Mutex   // see subscriber
	ahead   atomic.Int64 // how far the partner's clock is, in nanoseconds
}

// Where the shop's events go.
const (
	internalStream      = "ordering::order"
	partnerProject      = "acme"
	partnerTopic        = "ordering.order"
	partnerSubscription = "ordering.order-partner"
	// ackDeadline is the shortest that Pub/Sub has.
	ackDeadline = 10 * time.Second
)

func startServers(ctx context.Context) (*servers, error) {
	s := &servers{redis: miniredis.NewMiniRedis(), redisUp: true}
	if err := s.redis.Start(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	carrier, err := startEndpoint()
	if err != nil {
		s.redis.Close()
		return nil, err
	}
	s.carrier = carrier
	s.asks = redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	s.pubsub = pstest.NewServer()
	s.pubsub.SetTimeNowFunc(func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) })
	topic := "projects/" + partnerProject + "/topics/" + partnerTopic
	if _, err := s.pubsub.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
		s.close()
		return nil, fmt.Errorf("create topic %s: %w", topic, err)
	}
	subscription := &pubsubpb.Subscription{
		Name: "projects/" + partnerProject + "/subscriptions/" + partnerSubscription, Topic: topic,
		AckDeadlineSeconds: int32(ackDeadline / time.Second), EnableMessageOrdering: true,
	}
	if _, err := s.pubsub.GServer.CreateSubscription(ctx, subscription); err != nil {
		s.close()
		return nil, fmt.Errorf("create subscription %s: %w", subscription.GetName(), err)
	}
	s.address = "127.0.0.1:0"
	if err := s.partnerUp(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *servers) redisAddr() string   { return s.redis.Addr() }
func (s *servers) partnerAddr() string { return s.address }

// carrierBusy lets the carrier's endpoint ask for a pause, carrierFree lets it take messages again.
func (s *servers) carrierBusy()       { s.carrier.setBusy(true) }
func (s *servers) carrierFree() error { s.carrier.setBusy(false); return nil }

// partnerUp opens the partner's listener, on the same port as before.
func (s *servers) partnerUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		return nil
	}
	listener, err := net.Listen("tcp", s.address) //nolint:noctx // it returns at once
	if err != nil {
		return fmt.Errorf("open the partner's port: %w", err)
	}
	s.address = listener.Addr().String()
	s.grpc = grpc.NewServer()
	pubsubpb.RegisterPublisherServer(s.grpc, &s.pubsub.GServer)
	pubsubpb.RegisterSubscriberServer(s.grpc, subscriber{&s.pubsub.GServer, &s.sending})
	go s.grpc.Serve(listener) //nolint:errcheck // it ends when the server is stopped
	return nil
}

// partnerDown closes the listener and cuts all connections. What was published stays with the
// server.
func (s *servers) partnerDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		s.grpc.Stop()
		s.grpc = nil
	}
}

// deadlinesPass puts the partner's clock forward: what a consumer had claimed that has died, or was
// on its way to no one, is delivered again now, and not after the ten seconds that Pub/Sub waits at
// least.
func (s *servers) deadlinesPass() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.ahead.Add(int64(ackDeadline + time.Second))
}

// internalDown closes the internal broker's port and cuts all connections. It keeps what it has.
func (s *servers) internalDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.redisUp {
		s.redis.Close()
		s.redisUp = false
	}
}

// internalUp opens the internal broker's port again, the same one as before.
func (s *servers) internalUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.redisUp {
		return nil
	}
	s.redis.Ctx, s.redis.CtxCancel = context.WithCancel(context.Background()) //nolint:gosec // its Close calls it; the old one has ended, and no read would wait any more
	if err := s.redis.Restart(); err != nil {
		return fmt.Errorf("open the internal broker's port: %w", err)
	}
	s.redisUp = true
	return nil
}

// unconfirmed is the number of messages that a consumer has not confirmed yet; of the internal
// broker's at least 1 where there are any, and while it cannot be asked.
func (s *servers) unconfirmed(ctx context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.redisUp {
		return 1, nil
	}
	entries, err := s.redis.Stream(internalStream)
	if err != nil {
		return 0, fmt.Errorf("read stream %s: %w", internalStream, err)
	}
	groups, err := s.asks.XInfoGroups(ctx, internalStream).Result()
	if err != nil {
		return 0, fmt.Errorf("ask how far the consumer of %s is: %w", internalStream, err)
	}
	n := len(entries)
	for _, group := range groups {
		if group.Name == warehouse && n > 0 && group.LastDeliveredID == entries[n-1].ID {
			n = int(group.Pending)
		}
	}
	for _, message := range s.pubsub.Messages() {
		if message.Acks == 0 {
			n++
		}
	}
	return n, nil
}

func (s *servers) close() {
	s.partnerDown()
	_ = s.asks.Close()
	s.redis.Close()
	s.carrier.close()
	_ = s.pubsub.Close()
}

// arrival is one message as a consumer sees it.
type arrival struct {
	id   string
	data []byte
}

// arrived returns what consumers of each broker see.
func (s *servers) arrived(context.Context) (map[string][]arrival, error) {
	result := map[string][]arrival{"default": nil, "partner": nil}
	for _, stream := range s.redis.Keys() {
		entries, err := s.redis.Stream(stream)
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", stream, err)
		}
		for _, entry := range entries {
			var a arrival
			for i := 0; i+1 < len(entry.Values); i += 2 {
				switch entry.Values[i] {
				case "id":
					a.id = strings.Clone(entry.Values[i+1])
				case "data":
					a.data = []byte(entry.Values[i+1])
				}
			}
			result["default"] = append(result["default"], a)
		}
	}
	for _, message := range s.pubsub.Messages() {
		result["partner"] = append(result["partner"], arrival{id: message.Attributes["id"], data: message.Data})
	}
	result["carrier"] = s.carrier.messages()
	return result, nil
}
