package pubsubconsumer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers/brokertest"
	"github.com/gorm-fanout/fanout/inbox"
)

// journal is a log that can be looked at.
type journal struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.all.String(), text)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// hurried makes a consumer look at the subscription more often.
func hurried(t testing.TB, client *pubsub.Client, handler inbox.Handler, config ...Config) *Consumer {
	t.Helper()
	c, err := NewConsumer(client, name, handler, impatiently(config))
	require.NoError(t, err)
	c.pace.probe, c.pace.tick, c.pace.gap = 20*time.Millisecond, 5*time.Millisecond, 100*time.Millisecond
	c.pace.again = inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond}
	return c
}

// A stop while the server has gone silent ends soon.
func TestStopWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	proxy := brokertest.StartProxy(t, s.Addr)
	s.one("a", 0)
	let := make(chan struct{})
	l := newLedger(t, func(context.Context, *inbox.Message, seen, int) (inbox.Outcome, error) {
		<-let
		return inbox.Handled, nil
	})
	var j journal
	c := hurried(t, newClient(t, proxy.Addr(t)), l, Config{ConsumerConfig: inbox.ConsumerConfig{Log: j.logger()}})
	c.pace.grace = 50 * time.Millisecond
	p := started(t, c)
	eventually(t, func() bool { return p.Stats().Running == 1 }, "it has begun")
	proxy.BlackHole(t)
	close(let)
	eventually(t, func() bool { return p.Stats().Handled == 1 }, "it is done")
	require.NoError(t, p.stop())
	assert.Equal(t, 1, j.count("last confirmations not answered"))
	assert.Equal(t, 1, j.count("waited=50ms"), "and then it goes")
	proxy.Heal(t)
}

// What ends Run says what to do about it.
func TestFinalErrors(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	client := newClient(t, s.Addr)
	c, err := NewConsumer(client, "nobody", newLedger(t, nil), Config{ConsumerConfig: inbox.ConsumerConfig{Log: silent()}})
	require.NoError(t, err)
	err = c.Run(t.Context())
	require.ErrorContains(t, err, "projects/acme/subscriptions/nobody")
	require.ErrorContains(t, err, "create the subscription")
	assert.Equal(t, codes.NotFound, status.Code(err))

	// It is deleted meanwhile; a message that is in progress is finished.
	s.publish("a", 1)
	done := make(chan struct{})
	c = hurried(t, client, inbox.HandlerFunc(func(context.Context, *inbox.Message) (inbox.Outcome, error) {
		_, err := s.GServer.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: name})
		close(done)
		return inbox.Handled, err
	}))
	require.ErrorContains(t, c.Run(t.Context()), "create the subscription")
	<-done
	assert.Equal(t, int64(1), c.Stats().Handled)

	_, err = s.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: name, Topic: topic})
	require.NoError(t, err)
	other, err := pubsub.NewClient(t.Context(), project, clientOptions(s.Addr)...)
	require.NoError(t, err)
	s.publish("b", 1)
	c = hurried(t, other, newLedger(t, nil))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	eventually(t, func() bool { return c.Stats().Handled == 1 }, "it runs")
	require.NoError(t, other.Close())
	require.ErrorContains(t, <-ended, "close it after Run has returned")

	for code, remedy := range remedies {
		final := c.final(status.Error(code, "no"))
		require.ErrorContains(t, final, remedy)
		assert.Equal(t, code, status.Code(final))
	}
	for _, code := range []codes.Code{codes.Unavailable, codes.Unauthenticated, codes.ResourceExhausted, codes.Unknown, codes.Canceled} {
		require.NoError(t, c.final(status.Error(code, "no")))
	}
}

// refusing refuses calls as long as it is told to.
type refusing struct {
	err atomic.Pointer[error]
}

// React implements [pstest.Reactor].
func (r *refusing) React(any) (handled bool, response any, err error) {
	if refused := r.err.Load(); refused != nil {
		return true, nil, *refused
	}
	return false, nil, nil
}

func (r *refusing) with(err error) { r.err.Store(&err) }

// Confirmations of a subscription with exactly-once delivery are looked at: what fails is counted
// and logged, and is no error of the message.
func TestConfirmationsFail(t *testing.T) {
	t.Parallel()
	var refused refusing
	s := newServerWith(t, []pstest.ServerReactorOption{{FuncName: "Acknowledge", Reactor: &refused}}, func(sub *pubsubpb.Subscription) {
		sub.EnableExactlyOnceDelivery = true
	})
	s.publish("a", 1)
	refused.with(status.Error(codes.PermissionDenied, "no"))
	l := newLedger(t, nil)
	var j journal
	p := start(t, newClient(t, s.Addr), l, Config{ConsumerConfig: inbox.ConsumerConfig{Log: j.logger()}})
	eventually(t, func() bool { return j.count("confirmation failed") > 0 }, "the failure is logged, after it was counted")
	assert.Equal(t, int64(1), p.Stats().AckFailures)
	assert.Equal(t, 1, j.count("confirmation failed"))
	refused.err.Store(nil)
	s.pass(2 * DefaultLease)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "it comes again and is confirmed")
	require.NoError(t, p.stop())
	assert.Equal(t, int64(1), p.Stats().AckFailures)
	assert.Zero(t, p.Stats().Failed)
}

// A topic of dead letters that is out blocks the message, without running its handler again, until
// it is there.
func TestDeadLettersCannotBePublished(t *testing.T) {
	t.Parallel()
	var refused refusing
	s := newServerWith(t, []pstest.ServerReactorOption{{FuncName: "Publish", Reactor: &refused}})
	s.publish("a", 2)
	refused.with(status.Error(codes.PermissionDenied, "no"))
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it.n == 0 {
			return "", inbox.Permanent(errors.New("never"))
		}
		return inbox.Handled, nil
	})
	var j journal
	p := start(t, newClient(t, s.Addr), l, Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always(dead), Log: j.logger()}})
	eventually(t, func() bool { return j.count("dead letter not published") > 3 }, "it is tried again")
	assert.Empty(t, l.finished())
	refused.err.Store(nil)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	require.NoError(t, p.stop())
	assert.Len(t, s.letters(), 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Equal(t, map[seen]int{{"a", 0}: 1, {"a", 1}: 1}, l.times)
}

// tooLarge refuses dead letters with what a consumer adds, as Pub/Sub does where no room is left.
type tooLarge struct{}

// React implements [pstest.Reactor].
func (tooLarge) React(request any) (handled bool, response any, err error) {
	publish := request.(*pubsubpb.PublishRequest) // it is asked for no other
	if publish.GetMessages()[0].GetAttributes()[inbox.FieldDeadLetterReason] == "" {
		return false, nil, nil
	}
	return true, nil, status.Error(codes.InvalidArgument, "too large")
}

// A message as large as Pub/Sub allows fits the dead letters, without what is added.
func TestLargeDeadLetter(t *testing.T) {
	t.Parallel()
	s := newServerWith(t, []pstest.ServerReactorOption{{FuncName: "Publish", Reactor: tooLarge{}}})
	s.publish("a", 1)
	l := newLedger(t, func(context.Context, *inbox.Message, seen, int) (inbox.Outcome, error) {
		return "", inbox.Permanent(errors.New("never"))
	})
	p := start(t, newClient(t, s.Addr), l, Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always(dead)}})
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "it is forwarded")
	require.NoError(t, p.stop())
	require.Len(t, s.letters(), 1)
	assert.Equal(t, map[string]string{"n": "0"}, s.letters()[0].Attributes)
}

// Without message ordering a warning says so, and a key that fills the room does not keep others
// out.
func TestHotKey(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(sub *pubsubpb.Subscription) { sub.EnableMessageOrdering = false })
	var healed atomic.Bool
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it.key == "hot" && !healed.Load() {
			return "", inbox.Unavailable(errors.New("out"))
		}
		return inbox.Handled, nil
	})
	var j journal
	s.publish("hot", 60)
	c := hurried(t, newClient(t, s.Addr), l,
		Config{ConsumerConfig: inbox.ConsumerConfig{
			Workers: 2, MaxOutstandingMessages: 20, MaxOutstandingBytes: 1 << 20,
			Retry: inbox.Retry{BaseDelay: 100 * time.Millisecond, MaxDelay: 100 * time.Millisecond}, Log: j.logger(),
		}})
	p := started(t, c)
	eventually(t, func() bool { return p.Stats().Claimed == 20 }, "there is no room left")
	s.publish("cold", 5)
	eventually(t, func() bool { return p.Stats().Handled == 5 }, "the other key gets in")
	healed.Store(true)
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	require.NoError(t, p.stop())
	assert.Equal(t, 1, j.count("message ordering not enabled"))
	assert.Positive(t, p.Stats().Nacked)
}
