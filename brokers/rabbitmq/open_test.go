package rabbitmq_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "hush", "redis://user:hush@host", "amqp://user:hush/no@host:x/", "amqp://user:hush@ho st", "amqp://user:hush@host:port",
		"amqp://user:hush@host?heartbeat=soon", "amqp://user:hush@host?connection_timeout=-1",
	} {
		_, err := rabbitmq.Open(rabbitmq.Settings{URL: adapter.Secret(url)})
		require.ErrorContains(t, err, "write amqp://user:password@host:port/vhost", url)
		assert.NotContains(t, err.Error(), "hush")
	}
	_, err := rabbitmq.Open(rabbitmq.Settings{URL: "amqp://host", TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13}})
	require.ErrorContains(t, err, "amqps://")
	_, err = rabbitmq.Open(rabbitmq.Settings{URL: "amqp://host", Exchange: strings.Repeat("e", 256)})
	require.ErrorContains(t, err, "256 bytes")
}

func TestMeaninglessSettingsCountAsNotGiven(t *testing.T) {
	t.Parallel()
	b := open(t, "amqp://127.0.0.1:1", rabbitmq.Settings{Exchange: "", RoutingKey: nil, Expiration: -1, MaxMessageBytes: -1, Heartbeat: time.Millisecond, TLSConfig: nil})
	assert.Equal(t, brokers.Capabilities{Ordering: true, MaxMessageBytes: 16 << 20, MaxBatch: 500}, b.Capabilities())
	b = open(t, "amqp://127.0.0.1:1", rabbitmq.Settings{MaxMessageBytes: 1 << 40})
	assert.Equal(t, 512<<20, b.Capabilities().MaxMessageBytes)
}

func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	b := open(t, "amqp://user:hush@"+listener.Addr().String())
	results := b.Publish(t.Context(), many("d", 50, 3))
	assert.Equal(t, map[string]int{"unavailable broker": 1, "not_sent": 49}, verdicts(results))
	require.ErrorContains(t, results[0].Err, `rabbitmq: publish to exchange "fanout": connect: `)
	require.ErrorContains(t, results[0].Err, "check that the server runs")
	for _, err := range []error{results[0].Err, results[49].Err, b.Ping(t.Context()), b.CheckDestination(t.Context(), "d")} {
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hush")
	}
}

// Whatever happens while connecting is an outage of the broker, and no caller waits longer than its own
// context lasts, nor for another one's.
func TestNoServer(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn){
		"closed at once":    func(net.Conn) {},
		"closed at login":   func(c net.Conn) { _, _ = c.Read(make([]byte, 8)); _, _ = c.Write([]byte("AMQP\x00\x00\x09\x01")) },
		"says nothing":      func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"says other things": func(c net.Conn) { _, _ = c.Write([]byte(strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 9))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, "amqp://user:hush@"+listen(t, serve)+"?connection_timeout=300")
			results := b.Publish(t.Context(), many("d", 50, 3))
			assert.Equal(t, map[string]int{"unavailable broker": 1, "not_sent": 49}, verdicts(results), "%v", results[0].Err)
			require.Error(t, b.Ping(t.Context()))
			assert.NotContains(t, results[0].Err.Error(), "hush")
		})
	}
}

func TestImpatientCallers(t *testing.T) {
	t.Parallel()
	b := open(t, "amqp://"+listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })+"?connection_timeout=3600000") // an hour
	for name, c := range map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		want    map[string]int
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, map[string]int{"unavailable broker": 1, "not_sent": 9}},
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(30*time.Millisecond, cancel)
			return ctx, cancel
		}, map[string]int{"not_sent": 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := c.context(t.Context())
			defer cancel()
			assert.Equal(t, c.want, verdicts(b.Publish(ctx, many("d", 10, 3))))
		})
	}
}

// listen serves connections, each until serve returns, and returns the address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				serve(c)
				_ = c.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-done
	})
	return listener.Addr().String()
}
