package rabbitmq_test

import (
	"context"
	"net"
	"strings"
	"sync"
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
	authority, port := newAuthority(t), testenv.FreePort(t)
	server := startServer(t, "max_message_size = 100000", "listeners.ssl.1 = 127.0.0.1:"+port, "ssl_options.cacertfile = "+authority.file("ca.pem"),
		"ssl_options.certfile = "+authority.file("server.pem"), "ssl_options.keyfile = "+authority.file("server.key"))
	t.Run("TLS", func(t *testing.T) { testTLS(t, authority, net.JoinHostPort("127.0.0.1", port)) })
	c := exchange(t, server.URL, amqp.ExchangeTopic)
	c.bind(t, "d")
	for _, test := range []struct {
		name string
		run  func(*testing.T, *testservers.RabbitMQ, *consumer)
	}{
		{"Credentials", testCredentials},
		{"Permissions", testPermissions},
		{"TooLarge", testTooLarge},
		{"Nack", testNack},
		{"Killed", testKilled},
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
	for _, c := range []struct{ url, want string }{
		{"amqp://guest:hush@" + server.Address(), "check user and password"},
		{"amqp://nobody:hush@" + server.Address(), "check user and password"},
		{server.URL + "missing", "check the virtual host"},
	} {
		b := open(t, c.url)
		results := b.Publish(t.Context(), many("d", 10, 3))
		unavailable(t, results)
		for _, err := range []error{results[0].Err, results[9].Err, b.Ping(t.Context())} {
			require.ErrorContains(t, err, c.want)
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

// A full queue is no message's fault: none loses an attempt while consumers are behind.
func testNack(t *testing.T, server *testservers.RabbitMQ, c *consumer) {
	full := c.exchange + ".nack"
	c.do(t, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(full, true, false, false, false, amqp.Table{"x-max-length": 3, "x-overflow": "reject-publish"})
		c.queues = append(c.queues, full)
		return err
	})
	c.do(t, func(ch *amqp.Channel) error { return ch.QueueBind(full, "nack", c.exchange, false, nil) })
	b := open(t, server.URL, rabbitmq.Settings{Exchange: c.exchange})
	msgs := many("nack", 10, 1)
	assert.Equal(t, map[string]int{"": 3, "unavailable destination": 1, "not_sent": 6}, verdicts(b.Publish(t.Context(), msgs)))
}

// Connections are closed by an operator while several callers publish: no message is lost, nor out of
// order, and nobody is to blame.
func testKilled(t *testing.T, server *testservers.RabbitMQ, c *consumer) {
	const callers, each = 3, 4000
	b := open(t, server.URL, rabbitmq.Settings{Exchange: c.exchange})
	var (
		publishing sync.WaitGroup
		all        [callers][]brokers.Message
		said       [callers]map[string]int
	)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for n := range callers {
		all[n], said[n] = many("d", each, 20), map[string]int{}
		for i := range all[n] {
			all[n][i].OrderingKey += "-of-" + string(rune('a'+n))
		}
		publishing.Go(func() {
			for rest := all[n]; len(rest) > 0 && ctx.Err() == nil; {
				bulk := rest[:min(400, len(rest))]
				results := b.Publish(ctx, bulk)
				for class, count := range verdicts(results) {
					said[n][class] += count
				}
				waiting := make([]brokers.Message, 0, len(rest))
				for i, result := range results {
					if result.Err != nil {
						waiting = append(waiting, bulk[i])
					}
				}
				rest = append(waiting, rest[len(bulk):]...)
			}
		})
	}
	eval(t, server, closeAll)
	publishing.Wait()
	require.NoError(t, ctx.Err())
	for n := range callers {
		assert.Equal(t, each, said[n][""], "%v", said[n])
		assert.Zero(t, said[n]["retryable"]+said[n]["permanent"]+said[n]["unavailable destination"], "%v", said[n])
		arrived(t, c, all[n], make([]brokers.Result, each))
	}
	t.Log(said)
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
