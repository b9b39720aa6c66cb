package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/nats/internal/natsprocess"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("InProcess", func(t *testing.T) {
		t.Parallel()
		conforms(t, startServer(t, nil), jetstream.StreamConfig{})
	})
	t.Run("Process", func(t *testing.T) {
		t.Parallel()
		conforms(t, startProcesses(t, 1), jetstream.StreamConfig{})
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		conforms(t, startProcesses(t, 3), jetstream.StreamConfig{Replicas: 3})
	})
}

func conforms(t *testing.T, s *jetServer, stream jetstream.StreamConfig) {
	t.Helper()
	stream.Name, stream.Subjects = "ORDERING", []string{"ordering.>"}
	s.stream(t, stream)
	var (
		number  atomic.Int64
		refused spoiler
	)
	h := brokertest.Harness{
		Open: func(t *testing.T) brokers.Broker {
			b, err := nats.Open(nats.Settings{URL: adapter.Secret(s.url), Client: []client.Option{client.SetCustomDialer(&refused)}})
			require.NoError(t, err)
			return b
		},
		Destination: func(*testing.T) string { return fmt.Sprintf("ordering::order%d", number.Add(1)) },
		Received: func(t *testing.T, destination string) []brokers.Message {
			subject, err := nats.SubjectOf("", destination)
			require.NoError(t, err)
			return s.received(t, subject, destination)
		},
		OmitsText: true, // headers have tokens for names, and no line ends
		Refuse: func(_ *testing.T, id string) (restore func()) {
			refused.ids.Store(id, struct{}{})
			return func() { refused.ids.Delete(id) }
		},
		Stop:  func(t *testing.T) { s.stop(t) },
		Start: func(t *testing.T) { s.start(t) },
	}
	if stream.Replicas <= 1 { // clients find the other servers of a cluster by themselves
		proxy := brokertest.StartProxy(t, s.addr())
		h.Network = proxy
		h.OpenThroughNetwork = func(t *testing.T) brokers.Broker {
			b, err := nats.Open(nats.Settings{URL: adapter.Secret("nats://" + proxy.Addr(t))})
			require.NoError(t, err)
			return b
		}
	}
	brokertest.Run(t, h)
}

// The leader of a replicated stream dies while messages are published, and comes back, twice:
// nothing is lost, keys keep their order, and no message is stored twice.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	s := startProcesses(t, 3)
	s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.>"}, Replicas: 3})
	b := open(t, s.url)
	const keys, destination = 4, "ordering::order"
	var (
		published [keys]atomic.Int64
		feeding   sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	for key := range keys {
		feeding.Go(func() {
			for n := key; ctx.Err() == nil; n += keys {
				m := []brokers.Message{numbered(destination, fmt.Sprint(key), n)}
				for t.Context().Err() == nil { // as the relay does, without its pauses
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					err := b.Publish(ctx, m)[0].Err
					cancel()
					if err == nil {
						break
					}
				}
				published[key].Add(1)
			}
		})
	}
	progress := func(what string) {
		for key := range keys {
			from := published[key].Load()
			require.Eventually(t, func() bool { return published[key].Load() > from+50 }, 2*patience, 5*time.Millisecond, "%s: key %d", what, key)
		}
	}
	progress("before")
	for range 2 {
		leader := s.leader(t, "ORDERING")
		s.kill(t, leader)
		progress("without the leader")
		s.conn.Close()
		s.start(t)
		progress("with it again")
	}
	stop()
	feeding.Wait()
	next := [keys]int{0, 1, 2, 3}
	for _, m := range s.received(t, "ordering.order", destination) {
		n, err := strconv.Atoi(string(m.Payload))
		require.NoError(t, err)
		require.Equal(t, next[n%keys], n, "of key %d", n%keys)
		next[n%keys] += keys
	}
	for key := range keys {
		require.Equal(t, int(published[key].Load()), next[key]/keys, "of key %d", key)
	}
}

// leader is the process that leads a stream.
func (s *jetServer) leader(t *testing.T, stream string) (leader *natsprocess.Process) {
	t.Helper()
	require.Eventually(t, func() bool {
		found, err := s.js.Stream(t.Context(), stream)
		if err != nil || found.CachedInfo().Cluster == nil {
			return false
		}
		for _, node := range s.nodes {
			if node.Name == found.CachedInfo().Cluster.Leader {
				leader = node
			}
		}
		return leader != nil
	}, patience, 10*time.Millisecond)
	return leader
}

func (s *spoiler) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return &spoiling{conn, s}, nil
}

type spoiling struct {
	net.Conn

	*spoiler
}

func (s *spoiling) Write(p []byte) (int, error) {
	spoilt := p
	s.ids.Range(func(id, _ any) bool {
		spoilt = bytes.ReplaceAll(spoilt, fmt.Appendf(nil, "Nats-Msg-Id: %s@", id), fmt.Appendf(nil, "Nats-Rollup: %s@", id))
		return true
	})
	return s.Conn.Write(spoilt)
}
