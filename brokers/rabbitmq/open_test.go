package rabbitmq_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/testenv"
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
	assert.Equal(t, brokers.Capabilities{Ordering: true, KeysInTurn: true, MaxMessageBytes: 16 << 20, MaxBatch: 500}, b.Capabilities())
	b = open(t, "amqp://127.0.0.1:1", rabbitmq.Settings{MaxMessageBytes: 1 << 40})
	assert.Equal(t, 512<<20, b.Capabilities().MaxMessageBytes)
}

// Whatever happens while connecting is an outage of the broker, and no error shows the password.
func TestNoServer(t *testing.T) {
	t.Parallel()
	gone := listen(t, nil)
	for name, address := range map[string]string{
		"refused":           gone,
		"closed at once":    listen(t, func(net.Conn) {}),
		"closed at login":   listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 8)); _, _ = c.Write([]byte("AMQP\x00\x00\x09\x01")) }),
		"says nothing":      listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }),
		"says other things": listen(t, func(c net.Conn) { _, _ = c.Write([]byte(strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 9))) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, "amqp://user:hush@"+address+"?connection_timeout=300")
			results := b.Publish(t.Context(), many("d", 50, 3))
			assert.Equal(t, map[string]int{"unavailable broker": 1, "not_sent": 49}, verdicts(results), "%v", results[0].Err)
			if address == gone {
				require.ErrorContains(t, results[0].Err, `rabbitmq: publish to exchange "fanout": connect: `)
				require.ErrorContains(t, results[0].Err, "check that the server runs")
			}
			for _, err := range []error{results[0].Err, results[49].Err, b.Ping(t.Context()), b.CheckDestination(t.Context(), "d")} {
				require.Error(t, err)
				assert.NotContains(t, err.Error(), "hush")
			}
		})
	}
}

// No caller waits longer than its own context lasts.
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

// listen serves connections, each until serve returns, and returns the address; without serve none is accepted.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if serve == nil {
		require.NoError(t, listener.Close())
		return listener.Addr().String()
	}
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

// configured is the broker of a section of the file.
func configured(t *testing.T, settings string) (brokers.Broker, error) {
	t.Helper()
	cfg, err := config.Parse([]byte("brokers: {default: {type: rabbitmq, "+settings+"}}\n"), "fanout.yaml", config.WithBrokerTypes(rabbitmq.Type()))
	require.NoError(t, err)
	return cfg.Brokers["default"].Settings.Open(t.Context(), "default")
}

// What the file says reaches the server.
func TestSettings(t *testing.T) {
	t.Parallel()
	url, exchange := testenv.RabbitMQ(t), testenv.RabbitMQPrefix(t)+"settings"
	c := &consumer{url: url, exchange: exchange, seen: map[string][]brokers.Message{}}
	t.Cleanup(func() { c.close(t) })
	for _, test := range []struct{ settings, want string }{ // in this order: the first one finds no exchange
		{"", "404"},
		{", create_destinations: true", "NO_ROUTE"},
		{", unroutable: drop, expiration: 1m", ""},
		{", unroutable: drop, max_message_bytes: 2", "at most 2"},
		{", unroutable: wait, max_message_bytes: 1048576", "NO_ROUTE"},
	} {
		b, err := configured(t, fmt.Sprintf("url: %q, exchange: %q%s", url, exchange, test.settings))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
		result := b.Publish(t.Context(), []brokers.Message{{ID: "1", Destination: "d", Type: "T.v1", Payload: []byte("{ }")}})[0]
		if test.want == "" {
			require.NoError(t, result.Err, test.settings)
		} else {
			require.ErrorContains(t, result.Err, test.want, test.settings)
		}
	}
	c.do(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete(exchange, false, false) })
}

func TestSettingsOfTLS(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.pem")
	_, err := configured(t, fmt.Sprintf("url: 'amqps://ada:hush@h', tls: {ca_file: %q}", missing))
	require.ErrorContains(t, err, `rabbitmq: open: tls: ca_file: open `+missing)
	assert.NotContains(t, err.Error(), "hush")
}
