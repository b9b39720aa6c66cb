package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.stream(t, jetstream.StreamConfig{Name: "ORDERING", Subjects: []string{"ordering.>"}, AllowDirect: true})
	var (
		number  atomic.Int64
		refused spoiler
	)
	proxy := toxic.Start(t, s.addr())
	brokertest.Run(t, brokertest.Harness{
		Open: func(t *testing.T) brokers.Broker {
			b, err := nats.Open(s.url, nats.WithDialer(&refused))
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
		Stop:    func(t *testing.T) { s.stop(t) },
		Start:   func(t *testing.T) { s.start(t) },
		Network: proxy,
		OpenThroughNetwork: func(t *testing.T) brokers.Broker {
			b, err := nats.Open("nats://" + proxy.Addr(t))
			require.NoError(t, err)
			return b
		},
	})
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
