package rabbitmqconsumer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq/rabbitmqconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
)

var handler = inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) { return inbox.Handled, nil })

// All that is wrong is reported at once, and nothing of the URL is shown.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	_, err := rabbitmqconsumer.NewConsumer("amqp://user:se#cret@host:x/", "", nil, rabbitmqconsumer.Config{
		ConsumerConfig:   inbox.ConsumerConfig{Workers: -1, MaxOutstandingMessages: 65_536, MaxOutstandingBytes: 1 << 20, DeadLetters: inbox.Always("")},
		QueueDeadLetters: true, TLS: &tls.Config{MinVersion: tls.VersionTLS12},
	})
	for _, part := range []string{
		"the URL is not understood", "the handler is nil", "the queue's name has 0 bytes", "Workers is -1", "give one of them", "name a queue, or an exchange",
		"MaxOutstandingMessages is 65536: give 1 to 65535", "MaxOutstandingBytes is 1048576: RabbitMQ bounds messages alone", "TLS needs a URL",
	} {
		require.ErrorContains(t, err, part)
	}
	assert.NotContains(t, err.Error(), "cret")
	_, err = rabbitmqconsumer.NewConsumer("amqp://localhost", "orders", handler,
		rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always("orders")}})
	require.ErrorContains(t, err, "would go back to the queue")
}

// What the server refuses at the start ends Run, with advice; later it is waited out.
func TestRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	refused := func(url, queue, want string) {
		c, err := rabbitmqconsumer.NewConsumer(url, queue, handler, rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: slog.New(slog.DiscardHandler)}})
		require.NoError(t, err)
		err = c.Run(t.Context())
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hush")
	}
	refused(q.url, q.name+"-missing", "declare the queue")
	refused(strings.TrimSuffix(q.url, "/")+"/nowhere", q.name, "check the virtual host")
}

// RabbitMQ ends the connection of who logs in with a wrong password, as a network may that is out: it
// is waited for, and named.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	said := make(chan string, 10)
	c, err := rabbitmqconsumer.NewConsumer(strings.Replace(q.url, "guest:guest", "guest:hush", 1), q.name, handler,
		rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: slog.New(slog.NewTextHandler(lines(said), &slog.HandlerOptions{Level: slog.LevelWarn}))}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	line := <-said
	assert.Contains(t, line, "broker unavailable")
	assert.Contains(t, line, "check user, password")
	assert.NotContains(t, line, "hush")
	cancel()
	require.NoError(t, <-ended)
	assert.Empty(t, said, "it is said once")
}

// lines are the lines of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A message is confirmed alone: one that was delivered before it, and whose handler a stop ends, comes again.
func TestConfirmedOneByOne(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	c, err := rabbitmqconsumer.NewConsumer(q.url, q.name, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		if m.OrderingKey == "held" {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return inbox.Handled, nil
	}), rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{ShutdownTimeout: time.Millisecond, Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for _, key := range []string{"held", "done"} {
		q.publish(t, consumertest.Message{ID: key, Type: "T.v1", Key: key, Payload: []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"T.v1","data":{}}`)})
	}
	require.Eventually(t, func() bool { return c.Stats().Handled == 1 && c.Stats().Running == 1 }, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	q.do(t, func(ch *amqp.Channel) error {
		var returned amqp.Delivery
		require.Eventually(t, func() bool {
			d, found, err := ch.Get(q.name, true)
			require.NoError(t, err)
			returned = d
			return found
		}, time.Minute, 5*time.Millisecond)
		assert.Equal(t, "held", returned.MessageId)
		return nil
	})
}

// A queue that is deleted while it is consumed is waited for. Its messages are lost, so their handlers are told.
func TestQueueDeleted(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	front := startTap(t, hostPort(t, q.url))
	var begun, lost atomic.Int64
	c, err := rabbitmqconsumer.NewConsumer(strings.Replace(q.url, hostPort(t, q.url), front.addr(), 1), q.name,
		inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
			if begun.Add(1) == 1 {
				<-ctx.Done()
				lost.Add(1)
				return "", context.Cause(ctx)
			}
			return inbox.Handled, nil
		}), rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Timeout: time.Hour, Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	message := consumertest.Message{ID: "1", Type: "T.v1", Payload: []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"T.v1","data":{}}`)}
	q.publish(t, message)
	require.Eventually(t, func() bool { return begun.Load() == 1 }, time.Minute, 5*time.Millisecond)
	q.do(t, func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(q.name, false, false, false)
		return err
	})
	require.Eventually(t, func() bool { return lost.Load() == 1 }, 20*time.Second, 5*time.Millisecond, "its handler is told")
	require.Eventually(t, func() bool { return front.subscribed.Load() >= 3 }, time.Minute, 5*time.Millisecond, "it asks for the queue that is missing")
	q.do(t, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q.name, true, false, false, false, nil)
		return errors.Join(err, ch.QueueBind(q.name, "#", q.name, false, nil))
	})
	q.publish(t, message)
	require.Eventually(t, func() bool { return c.Stats().Handled == 1 }, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

// The server keeps the messages for which there is no room.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	for n := range 10 {
		q.publish(t, consumertest.Message{ID: strconv.Itoa(n), Type: "T.v1", Payload: []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"T.v1","data":{}}`)})
	}
	free := make(chan struct{})
	c, err := rabbitmqconsumer.NewConsumer(q.url, q.name, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		<-free
		return inbox.Handled, nil
	}), rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{MaxOutstandingMessages: 2, Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.Eventually(t, func() bool { return c.Stats().Claimed >= 2 }, time.Minute, 5*time.Millisecond)
	q.do(t, func(ch *amqp.Channel) error {
		found, err := ch.QueueInspect(q.name) //nolint:staticcheck // QueueDeclarePassive wants to know the arguments
		assert.Equal(t, 8, found.Messages)
		return err
	})
	close(free)
	require.Eventually(t, func() bool { return c.Stats().Handled == 10 }, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

// A server that does not answer a subscription, although it lives, is asked again, and keeps no stop waiting.
func TestSubscriptionNotAnswered(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	front := startTap(t, hostPort(t, q.url))
	front.deaf.Store(true)
	url := strings.Replace(q.url, hostPort(t, q.url), front.addr(), 1) + "?connection_timeout=500"
	c, err := rabbitmqconsumer.NewConsumer(url, q.name, handler, rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.Eventually(t, func() bool { return front.swallowed.Load() >= 2 }, time.Minute, 5*time.Millisecond, "it asks again")
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the stop waits for an answer")
	}
}

// A server that is short of memory or disk reads no more from connections that publish: a dead letter has to
// wait, but what makes room in the server is handled and confirmed.
func TestServerAlarm(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	front := startTap(t, hostPort(t, q.url))
	alarm := make(chan struct{})
	end := sync.OnceFunc(func() { close(alarm) })
	t.Cleanup(end)
	front.alarm.Store(&alarm)
	c, err := rabbitmqconsumer.NewConsumer(strings.Replace(q.url, hostPort(t, q.url), front.addr(), 1), q.name, handler,
		rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{
			MaxOutstandingMessages: 2,
			Retry:                  inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, DeadLetters: inbox.Always(q.dead), Log: slog.New(slog.DiscardHandler),
		}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	q.publish(t, consumertest.Message{ID: "x", Type: "T.v1", Payload: []byte("nonsense")})
	for n := range 20 {
		q.publish(t, consumertest.Message{ID: strconv.Itoa(n), Type: "T.v1", Payload: []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"T.v1","data":{}}`)})
	}
	require.Eventually(t, func() bool { return front.acked.Load() == 20 }, time.Minute, 5*time.Millisecond, "the others are confirmed")
	end()
	require.Eventually(t, func() bool { return front.acked.Load() == 21 }, time.Minute, 5*time.Millisecond, "and in the end the dead letter")
	cancel()
	require.NoError(t, <-ended)
	assert.NotEmpty(t, q.letters(t))
}

// The dead letter exchange of the queue gets abandoned messages. Each is rejected once: a confirmation beside it
// would close the channel, and count deliveries from 1 again.
func TestQueueDeadLetters(t *testing.T) {
	t.Parallel()
	plain := newQueue(t, nil) // for its queue of dead letters
	q := newQueue(t, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": plain.dead, "x-queue-type": "quorum"})
	positions := make(chan string, 10)
	c, err := rabbitmqconsumer.NewConsumer(q.url, q.name, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		positions <- m.Position
		return "", inbox.Permanent(errors.New("never"))
	}), rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: slog.New(slog.DiscardHandler)}, QueueDeadLetters: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for n := 1; n <= 2; n++ {
		id := strconv.Itoa(n)
		q.publish(t, consumertest.Message{ID: id, Type: "T.v1", Key: "k", Payload: []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"T.v1","data":{}}`)})
		var letters []consumertest.DeadLetter
		require.Eventually(t, func() bool {
			letters = append(letters, plain.letters(t)...)
			return len(letters) == 1
		}, time.Minute, 20*time.Millisecond)
		assert.Equal(t, []string{id, "k"}, []string{letters[0].ID, letters[0].Key})
		assert.Equal(t, id, <-positions)
	}
	cancel()
	require.NoError(t, <-ended)
	assert.Equal(t, int64(2), c.Stats().Forwarded)
}

// A place for dead letters that is missing blocks the message, and the process stays.
func TestDeadLettersCannotBePublished(t *testing.T) {
	t.Parallel()
	for _, to := range []struct{ exchange, want string }{{"", "no queue is bound"}, {"missing", "missing"}} {
		q := newQueue(t, nil)
		said := make(chan string, 1000)
		log := slog.New(slog.NewTextHandler(lines(said), &slog.HandlerOptions{Level: slog.LevelError}))
		c, err := rabbitmqconsumer.NewConsumer(q.url, q.name, handler, rabbitmqconsumer.Config{
			ConsumerConfig:     inbox.ConsumerConfig{Retry: inbox.Retry{BaseDelay: time.Millisecond}, DeadLetters: inbox.Always(q.name + "-nowhere"), Log: log},
			DeadLetterExchange: to.exchange,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		q.publish(t, consumertest.Message{ID: "1", Type: "T.v1", Payload: []byte("nonsense")})
		assert.Contains(t, <-said, "message cannot be read")
		line := <-said
		assert.Contains(t, line, "dead letter not published")
		assert.Contains(t, line, to.want)
		cancel()
		require.NoError(t, <-ended)
		q.do(t, func(ch *amqp.Channel) error {
			d, found, err := ch.Get(q.name, true)
			assert.True(t, found)
			assert.Equal(t, "1", d.MessageId)
			return err
		})
	}
}

// What a sender puts into headers costs nothing but its own message: routes, a user, headers as large
// as a frame.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	for _, headers := range []amqp.Table{
		{"big": strings.Repeat("x", 127<<10+800)}, // no room is left in its frame
		{"x-delivery-count": int64(-5), "ordering_key": int32(7), "list": []any{strings.Repeat("y", 64<<10), amqp.Table{"a": strings.Repeat("z", 60<<10)}}},
		{"x-delivery-count": "many", "dead_letter_reason": amqp.Table{}},
	} {
		q.do(t, func(ch *amqp.Channel) error {
			return ch.PublishWithContext(t.Context(), q.name, "k", true, false, amqp.Publishing{Headers: headers, UserId: "guest", Expiration: "600000", Body: []byte("nonsense")})
		})
	}
	c, err := rabbitmqconsumer.NewConsumer(q.url, q.name, handler,
		rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always(q.dead), Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.Eventually(t, func() bool { return c.Stats().Forwarded == 3 }, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	assert.Len(t, q.letters(t), 3)
}

// From the real publisher to the handler: the ordering key, the trace, the id.
func TestFields(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	got := make(chan *inbox.Message, 1)
	c, err := rabbitmqconsumer.NewConsumer(q.url, q.name, inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		got <- m
		return inbox.Handled, nil
	}), rabbitmqconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Consumer: "billing", Source: inbox.Always("ordering"), Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	results := q.broker.Publish(t.Context(), []brokers.Message{{
		ID: "1", Destination: "d", Type: "T.v1", OrderingKey: "key:1", CorrelationID: "c", Payload: []byte(`{"n":1}`),
		Attributes: []brokers.Attribute{
			{Name: "traceparent", Value: parent},
			{Name: "cloudEvents:specversion", Value: "1.0"},
			{Name: "cloudEvents:id", Value: "1"},
			{Name: "cloudEvents:source", Value: "/s"},
			{Name: "cloudEvents:type", Value: "T.v1"},
		},
	}})
	require.NoError(t, results[0].Err)
	m := <-got
	cancel()
	require.NoError(t, <-ended)
	assert.Equal(t, []string{"1", "T.v1", "key:1", "billing", "ordering", "1"}, []string{m.ID, m.Type, m.OrderingKey, m.Consumer, m.Source, m.Position})
	assert.Equal(t, []string{"1", "T.v1", "c", parent}, []string{m.Attributes["id"], m.Attributes["type"], m.Attributes["correlation_id"], m.Attributes["traceparent"]})
	assert.True(t, m.SpanContext().IsValid())
	assert.JSONEq(t, `{"n":1}`, string(m.Envelope.Data))
	assert.Zero(t, m.Deliveries, "a classic queue does not count")
}
