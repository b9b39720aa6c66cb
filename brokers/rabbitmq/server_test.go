package rabbitmq_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
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
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// What needs a server of its own, since it concerns all who use it. One server does for all of it: it
// takes many seconds to start.
func TestOwnServer(t *testing.T) { //nolint:tparallel // one after the other, as they change the server
	t.Parallel()
	file, port := certificate(t), testenv.FreePort(t)
	server := startServer(t, "max_message_size = 100000", "listeners.ssl.1 = 127.0.0.1:"+port, "ssl_options.cacertfile = "+file,
		"ssl_options.certfile = "+file, "ssl_options.keyfile = "+file)
	t.Run("TLS", func(t *testing.T) { testTLS(t, file, net.JoinHostPort("127.0.0.1", port)) })
	c := exchange(t, server.URL, amqp.ExchangeTopic)
	c.bind(t, "d")
	for _, test := range []struct {
		name string
		run  func(*testing.T, *testservers.RabbitMQ, *consumer)
	}{
		{"Credentials", testCredentials},
		{"Permissions", testPermissions},
		{"TooLarge", testTooLarge},
		{"Blocked", testBlocked},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, server, c) })
	}
}

// eval has the server do what an operator would have it do.
func eval(t *testing.T, server *testservers.RabbitMQ, expressions string) {
	t.Helper()
	_, err := server.Eval(t.Context(), expressions)
	require.NoError(t, err)
}

// closeAll closes the connections of all clients.
const closeAll = `rabbit_networking:close_connections(rabbit_networking:connections(), "a test").`

func testCredentials(t *testing.T, server *testservers.RabbitMQ, _ *consumer) {
	for url, want := range map[string]string{ // the server takes seconds to refuse each
		"amqp://guest:hush@" + server.Address(): "check user and password",
		server.URL + "missing":                  "check the virtual host",
	} {
		results := open(t, url).Publish(t.Context(), many("d", 10, 3))
		unavailable(t, results)
		for _, err := range []error{results[0].Err, results[9].Err} {
			require.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "hush")
		}
	}
}

// A user who may not write to the exchange, and then, to one routing key.
func testPermissions(t *testing.T, server *testservers.RabbitMQ, c *consumer) {
	const user, password = "reader", "hush"
	permissions := func(write string) string {
		return `rabbit_auth_backend_internal:set_permissions(<<"reader">>, <<"/">>, <<"^$">>, <<"` + write + `">>, <<".*">>, <<"test">>)`
	}
	eval(t, server, `rabbit_auth_backend_internal:add_user(<<"reader">>, <<"hush">>, <<"test">>), `+permissions("^$")+".")
	url := strings.Replace(server.URL, "guest:guest", user+":"+password, 1)
	b := open(t, url, rabbitmq.Settings{Exchange: c.exchange})
	results := b.Publish(t.Context(), many("d", 10, 5))
	unavailable(t, results)
	require.ErrorContains(t, results[0].Err, "permission to write to the exchange")
	require.NoError(t, b.CheckDestination(t.Context(), "d"), "looking at the exchange is allowed")

	declaring := open(t, url, rabbitmq.Settings{Exchange: "other", CreateDestinations: true})
	require.ErrorContains(t, declaring.Ping(t.Context()), "to configure it")

	eval(t, server, permissions(".*")+`, rabbit_auth_backend_internal:set_topic_permissions(<<"reader">>, <<"/">>, <<"`+c.exchange+`">>, <<"^d$">>, <<".*">>, <<"test">>).`)
	b = open(t, url, rabbitmq.Settings{Exchange: c.exchange}) // permissions are cached by channel
	c.bind(t, "forbidden")
	msgs := many("d", 40, 8)
	for i := range msgs {
		if i%8 == 5 {
			msgs[i].Destination = "forbidden"
		}
	}
	results = b.Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"": 35, "unavailable destination": 1, "not_sent": 4}, verdicts(results))
	require.ErrorContains(t, results[5].Err, "set_topic_permissions")
	require.Empty(t, c.received(t, "forbidden"))
	arrived(t, c, msgs, results)
}

// arrived checks that all confirmed messages are there, in the order of their keys.
func arrived(t *testing.T, c *consumer, msgs []brokers.Message, results []brokers.Result) {
	t.Helper()
	first, place := map[string]bool{}, map[string]int{}
	for i, m := range msgs {
		place[m.ID] = i
	}
	last := map[string]int{}
	for _, m := range c.received(t, "d") {
		i, ours := place[m.ID]
		if !ours || first[m.ID] {
			continue
		}
		first[m.ID] = true
		if before, follows := last[m.OrderingKey]; follows {
			require.Less(t, before, i, "key %s", m.OrderingKey)
		}
		last[m.OrderingKey] = i
	}
	for i, m := range msgs {
		switch class, _ := brokers.Classify(results[i].Err); class {
		case "":
			require.True(t, first[m.ID], "message %d was confirmed", i)
		case brokers.ClassNotSent, brokers.ClassPermanent:
			require.False(t, first[m.ID], "message %d was not sent", i)
		case brokers.ClassRetryable, brokers.ClassUnavailable: // perhaps
		}
	}
}

// A message above the server's limit costs itself, and the broker learns the limit by it.
func testTooLarge(t *testing.T, server *testservers.RabbitMQ, c *consumer) {
	b := open(t, server.URL, rabbitmq.Settings{Exchange: c.exchange})
	msgs := many("d", 60, 6)
	msgs[20].Payload = make([]byte, 100_001)
	msgs[22].Payload = make([]byte, 200_000)
	msgs[27].Payload = make([]byte, 100_000)
	results := b.Publish(t.Context(), msgs)
	assert.Equal(t, map[string]int{"": 46, "permanent": 2, "not_sent": 12}, verdicts(results))
	require.ErrorContains(t, results[20].Err, "100001 bytes")
	arrived(t, c, msgs, results)

	results = b.Publish(t.Context(), msgs[20:21])
	require.ErrorContains(t, results[0].Err, "at most 100000 are allowed", "the broker knows by now")

	// Somebody follows the advice. What was learned of the server before it was restarted ends no message.
	eval(t, server, "application:set_env(rabbit, max_message_size, 150000), "+closeAll)
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 2*time.Minute, 10*time.Millisecond)
	assert.Equal(t, map[string]int{"": 1}, verdicts(b.Publish(t.Context(), msgs[20:21])))
}

// A server without memory takes no messages, and says so: nobody waits for the deadline.
func testBlocked(t *testing.T, server *testservers.RabbitMQ, c *consumer) {
	b := open(t, server.URL, rabbitmq.Settings{Exchange: c.exchange})
	msgs := many("d", 100, 100)
	require.Equal(t, map[string]int{"": 100}, verdicts(b.Publish(t.Context(), msgs)))

	eval(t, server, "vm_memory_monitor:set_vm_memory_high_watermark(0.000001).")
	// The server looks at its memory now and then.
	require.Eventually(t, func() bool { return b.Publish(t.Context(), msgs)[0].Err != nil }, 2*time.Minute, 10*time.Millisecond)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		results := b.Publish(ctx, msgs)
		require.NoError(t, ctx.Err(), "nobody waits for the deadline")
		cancel()
		unavailable(t, results)
		require.ErrorContains(t, results[0].Err, "low on memory")
		require.ErrorContains(t, results[0].Err, "free memory or disk space")
	}
	require.ErrorContains(t, b.Ping(t.Context()), "low on memory")
	fresh := open(t, server.URL, rabbitmq.Settings{Exchange: c.exchange}) // the server has told it nothing yet
	require.ErrorContains(t, fresh.Publish(t.Context(), msgs)[0].Err, "low on memory")

	// A connection that is closed while it is blocked goes at once, with all that waits for it.
	closed, err := rabbitmq.Open(rabbitmq.Settings{URL: adapter.Secret(server.URL), Exchange: c.exchange})
	require.NoError(t, err)
	require.Error(t, closed.Publish(t.Context(), msgs)[0].Err)
	require.NoError(t, closed.Close(t.Context()))

	eval(t, server, "vm_memory_monitor:set_vm_memory_high_watermark(0.6).")
	require.Eventually(t, func() bool { return b.Publish(t.Context(), msgs)[99].Err == nil }, 2*time.Minute, 10*time.Millisecond)
	require.NoError(t, b.Ping(t.Context()))
}

// certificate writes a certificate for 127.0.0.1, which is its own authority, and its key to a file.
func certificate(t *testing.T) (file string) {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	pair := certified.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "server.pem")
	require.NoError(t, os.WriteFile(file, append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), 0o600))
	return file
}

func testTLS(t *testing.T, file, address string) {
	t.Helper()
	target := "amqps://guest:guest@" + address + "/"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	require.True(t, config.RootCAs.AppendCertsFromPEM(text))
	require.NoError(t, open(t, target, rabbitmq.Settings{TLSConfig: config, Exchange: "amq.topic"}).Ping(t.Context()))
	require.Empty(t, config.ServerName, "the caller's configuration is left alone")
	require.NoError(t, open(t, target+"?cacertfile="+url.QueryEscape(file), rabbitmq.Settings{Exchange: "amq.topic"}).Ping(t.Context()))
	require.ErrorContains(t, open(t, target).Ping(t.Context()), "name the server's certificate authority (tls.ca_file)")
	require.Error(t, open(t, "amqp://guest:guest@"+address+"?connection_timeout=500").Ping(t.Context()), "it talks TLS only")
}
