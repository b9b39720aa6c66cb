package demo

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/alicebob/miniredis/v2"
	"google.golang.org/grpc"
)

// servers are the two brokers, in this process: the internal one speaks the Redis protocol, the partner's is Google's
// own Pub/Sub fake.
type servers struct {
	redis *miniredis.Miniredis

	pubsub  *pstest.Server
	address string

	mu   sync.Mutex
	grpc *grpc.Server // nil while the partner is down
}

func startServers(ctx context.Context) (*servers, error) {
	s := &servers{redis: miniredis.NewMiniRedis()}
	if err := s.redis.Start(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	s.pubsub = pstest.NewServer()
	for _, topic := range []string{"ordering.order"} {
		if _, err := s.pubsub.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/acme/topics/" + topic}); err != nil {
			s.close()
			return nil, fmt.Errorf("create topic %s: %w", topic, err)
		}
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
	go s.grpc.Serve(listener) //nolint:errcheck // it ends when the server is stopped
	return nil
}

// partnerDown closes the listener and cuts all connections. What was published stays with the server.
func (s *servers) partnerDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		s.grpc.Stop()
		s.grpc = nil
	}
}

func (s *servers) close() {
	s.partnerDown()
	s.redis.Close()
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
	return result, nil
}
