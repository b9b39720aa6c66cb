package redisconsumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/toxic"
)

func ownSite(t *testing.T) (*site, *server) {
	t.Helper()
	s := startServer(t)
	return &site{connect(t, s.url()), "ordering::order"}, s
}

// The answer to a read is cut off: the entries are pending for a consumer that has never seen them.
// It finds out, and handles them, in order, without waiting for the time of a dead consumer; and
// nobody is charged with it. The client's own retries, which are on, change nothing about it.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	proxy := toxic.Start(t, s.Options().Addr)
	l := newLedger()
	counts := func(_ context.Context, m *inbox.Message, _ int) error {
		assert.Equal(t, 1, m.Deliveries)
		return nil
	}
	through := connect(t, "redis://"+proxy.Addr(t))
	require.Equal(t, 3, through.Options().MaxRetries)
	r := start(t, through, s.stream, l.handler(counts), redisconsumer.Config{ClaimAfter: time.Hour})
	n := 0
	for range 5 {
		s.addAllFrom(t, 3, n, 20)
		n += 20
		soon(t, "all handled", func() bool { return l.len() == n })
		soon(t, "all acknowledged", func() bool { return s.pending(t) == 0 })
		proxy.CutAnswers(t, 300) // less than an answer with messages has
		s.addAllFrom(t, 3, n, 20)
		n += 20
		soon(t, "they are pending", func() bool { return s.pending(t) >= 1 })
		proxy.Heal(t)
		soon(t, "all handled", func() bool { return l.len() == n })
	}
	soon(t, "all acknowledged", func() bool { return s.pending(t) == 0 })
	l.check(t, n)
	assert.Positive(t, r.stats(t).TakenOver)
}

func (s *site) addAllFrom(t testing.TB, orders, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		s.add(t, fmt.Sprint(i%orders), i)
	}
}

// Stream and group are deleted: they are created again, with a line in the log, and nothing that is
// added afterwards is missed.
func TestStreamIsDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var j journal
	l := newLedger()
	r := start(t, s, s.stream, l.handler(nil), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: j.logger()}})
	s.addAll(t, 3, 30)
	soon(t, "all handled", func() bool { return l.len() == 30 })
	soon(t, "none is acknowledged later", func() bool { return s.pending(t) == 0 }) // the ids of a new stream can be those of the old one
	require.NoError(t, s.Del(t.Context(), s.stream).Err())
	s.addAllFrom(t, 3, 30, 30)
	soon(t, "all handled, after that too", func() bool { return l.len() == 60 })
	l.check(t, 60)
	assert.Positive(t, r.stats(t).Recreated)
	assert.Positive(t, j.lines("level=ERROR", "consumer group deleted"))
}

// What is trimmed while it is pending is reported, and let go.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addAll(t, 3, 10)
	s.readDead(t, 6)
	require.NoError(t, s.XTrimMaxLen(t.Context(), s.stream, 7).Err())
	var j journal
	l := newLedger()
	r := start(t, s, s.stream, l.handler(nil), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: j.logger()}})
	soon(t, "what is left is handled", func() bool { return l.len() == 7 })
	soon(t, "the rest is reported", func() bool { return r.stats(t).Trimmed == 3 })
	assert.Equal(t, 3, j.lines("level=ERROR", "trimmed before it was handled"))
	soon(t, "nothing is pending", func() bool { return s.pending(t) == 0 })
	assert.Empty(t, s.rows(t))
}

// What does not pass by itself ends Run at its start, and says what to do.
func TestRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	admin := connect(t, server.url())
	require.NoError(t, admin.Set(t.Context(), "text", "x", 0).Err())
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "narrow", "on", ">secret", "~*", "+ping", "+xgroup").Err())
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "nothing", "on", ">secret", "~*", "+ping").Err())
	handler := newLedger().handler(nil)
	for url, says := range map[string]string{
		server.url(): "WRONGTYPE",
		"redis://nothing:secret@" + server.addr():  "NOPERM",
		"redis://narrow:mistaken@" + server.addr(): "WRONGPASS",
	} {
		c, err := redisconsumer.NewConsumer(connect(t, url), group, []string{"text", "stream"}, handler, quick())
		require.NoError(t, err)
		err = c.Run(t.Context())
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, `"text"`)
	}
}

// A handler that is cut off from the group by a freeze finds its context cancelled, and its message
// is another's.
func TestOwnershipIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(t, "a", 0)
	s.add(t, "a", 1)
	causes := make(chan error, 2)
	r := start(t, s, s.stream, inbox.HandlerFunc(func(ctx context.Context, _ *inbox.Message) (inbox.Outcome, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return inbox.Handled, nil // too late
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Timeout: time.Minute}, ClaimAfter: 2 * time.Second})
	soon(t, "it has them", func() bool { return s.pending(t) == 2 && r.stats(t).Claimed == 2 })
	for _, row := range s.rows(t) {
		require.NoError(t, s.Do(t.Context(), "XCLAIM", s.stream, group, "other", 0, row.ID, "IDLE", 0, "RETRYCOUNT", 2, "JUSTID").Err())
	}
	assert.ErrorContains(t, <-causes, "taken the message back")
	soon(t, "it lets go of them", func() bool { return r.stats(t).Claimed == 0 })
	for _, row := range s.rows(t) {
		assert.Equal(t, "other", row.Consumer)
	}
	assert.Equal(t, 2, s.pending(t), "nothing is acknowledged")
	assert.Equal(t, int64(2), r.stats(t).Lost)
	assert.Empty(t, causes, "the second was not begun")
	// Before the test ends the other one dies, and they come back.
	assert.Empty(t, s.dead(t))
}

// The dead letter cannot be written: the message waits for it, its key too, and nothing is lost.
func TestDeadLetterCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dead := redisconsumer.DeadStream(s.stream, group)
	require.NoError(t, s.Set(t.Context(), dead, "no stream", 0).Err())
	s.add(t, "a", 0)
	s.add(t, "b", 1)
	var j journal
	l := newLedger()
	start(t, s, s.stream, l.handler(func(_ context.Context, _ *inbox.Message, n int) error {
		if n == 0 {
			return inbox.Permanent(errors.New("never"))
		}
		return nil
	}), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: j.logger()}})
	soon(t, "the log says why", func() bool { return j.lines("level=ERROR", "dead letter not published", "WRONGTYPE") > 0 })
	soon(t, "the other key flows", func() bool { return l.len() == 1 && s.pending(t) == 1 })
	require.NoError(t, s.Del(t.Context(), dead).Err())
	soon(t, "it is written", func() bool { return len(s.dead(t)) == 1 && s.pending(t) == 0 })
}

// A message that another consumer has taken over while its handler failed is that one's business:
// no dead letter is written, whether it would be written in one step or in two.
func TestNoDeadLetterOfALostMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"only": s.Options().Addr}, DB: s.Options().DB, PoolSize: 20, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { require.NoError(t, ring.Close()) })
	for name, client := range map[string]redis.UniversalClient{"one step": s, "two steps": ring} {
		place := *s
		place.stream += ":" + name
		place.add(t, "a", 0)
		r := start(t, client, place.stream, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
			taken := place.Do(ctx, "XCLAIM", place.stream, group, "other", 0, m.Position, "IDLE", 0, "RETRYCOUNT", 2, "JUSTID").Err()
			return "", inbox.Permanent(errors.Join(errors.New("never"), taken))
		}), redisconsumer.Config{ClaimAfter: time.Hour}) // nothing is renewed meanwhile: only the dead letter finds out
		soon(t, name+": it lets go of it", func() bool { return r.stats(t).Lost == 1 && r.stats(t).Claimed == 0 })
		assert.Empty(t, place.dead(t), name)
		assert.Zero(t, r.stats(t).Forwarded, name)
		rows := place.rows(t)
		if assert.Len(t, rows, 1, name) {
			assert.Equal(t, "other", rows[0].Consumer, name)
		}
	}
}

func TestEverythingWrongAtOnce(t *testing.T) {
	t.Parallel()
	_, err := redisconsumer.NewConsumer(nil, "billing", []string{"a"}, inbox.NewHandlers(nil), redisconsumer.Config{})
	require.ErrorContains(t, err, "the GORM handle is nil", "handlers that are wrong in themselves")
	_, err = redisconsumer.NewConsumer(nil, "", []string{"a", "a", ""}, nil, redisconsumer.Config{
		ConsumerConfig: inbox.ConsumerConfig{Workers: -1, DeadLetters: inbox.Always("a")}, ClaimAfter: time.Millisecond, Block: -1,
	})
	for _, says := range []string{
		"client is nil", "handler is nil", "group has no name", "stream has no name", `"a" is named twice`, "Workers is -1", "ClaimAfter is 1ms", "Block is -1ns", "read itself",
	} {
		assert.ErrorContains(t, err, says)
	}
	loop := redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{DeadLetters: inbox.Always("a:backfill")}}
	_, err = redisconsumer.NewConsumer(connect(t, "redis://127.0.0.1:1"), group, []string{"a", "b"}, newLedger().handler(nil), loop)
	require.ErrorContains(t, err, `DeadLetters: those of "b" would go to "a:backfill", a backfill that is read`)
	loop.WithoutBackfill = true
	_, err = redisconsumer.NewConsumer(connect(t, "redis://127.0.0.1:1"), group, []string{"a", "b"}, newLedger().handler(nil), loop)
	require.NoError(t, err)
	_, err = redisconsumer.NewConsumer(connect(t, "redis://127.0.0.1:1"), group, nil, newLedger().handler(nil), redisconsumer.Config{})
	assert.EqualError(t, err, "redisconsumer: there is no stream to read: name at least one")
}

// What the server refuses for a while is waited out: nothing is lost, the log says it once, and
// again when it is over.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]struct {
		says         string
		refuse, heal []any
	}{
		"read-only": {"READONLY", []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
		"no right":  {"NOPERM", []any{"ACL", "SETUSER", "default", "-xreadgroup"}, []any{"ACL", "SETUSER", "default", "+@all"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := ownSite(t)
			var j journal
			l := newLedger()
			start(t, s, s.stream, l.handler(nil), redisconsumer.Config{ConsumerConfig: inbox.ConsumerConfig{Log: j.logger()}})
			s.addAll(t, 3, 30)
			soon(t, "it works", func() bool { return l.len() == 30 })
			require.NoError(t, s.Do(t.Context(), refusal.refuse...).Err())
			soon(t, "the log says so", func() bool { return j.lines("level=WARN", "broker unavailable", refusal.says) == 1 })
			require.NoError(t, s.Do(t.Context(), refusal.heal...).Err())
			s.addAllFrom(t, 3, 30, 30)
			soon(t, "it goes on", func() bool { return l.len() == 60 })
			soon(t, "the log says that it is over", func() bool { return j.lines("level=INFO", "broker available again") > 0 })
			assert.Equal(t, 1, j.lines("level=WARN"))
			l.check(t, 60)
		})
	}
}

// A message that was taken over, and is delivered anew under a handler because its group was
// deleted, is acknowledged under the new delivery: its count begins again.
func TestNewDeliveryIsAdopted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(t, "a", 0)
	s.readDead(t, 1)
	s.claimDead(t, id, 1)
	begun, release := make(chan int, 1), make(chan struct{})
	l := newLedger()
	r := start(t, s, s.stream, l.handler(func(ctx context.Context, m *inbox.Message, _ int) error {
		begun <- m.Deliveries
		<-release
		return context.Cause(ctx)
	}), redisconsumer.Config{ClaimAfter: 30 * time.Minute}) // nothing is renewed meanwhile
	assert.Equal(t, 2, <-begun)
	require.NoError(t, s.XGroupDestroy(t.Context(), s.stream, group).Err())
	soon(t, "it is delivered again", func() bool {
		return s.pending(t) == 1 && s.rows(t)[0].RetryCount == 1
	})
	s.add(t, "b", 1) // what is read after it says that it was admitted
	soon(t, "so is a younger one", func() bool { return r.stats(t).Claimed == 2 && len(begun) == 1 })
	close(release)
	soon(t, "nothing is pending", func() bool { return s.pending(t) == 0 && r.stats(t).Claimed == 0 })
	assert.Zero(t, r.stats(t).Lost, "it was ours under the new delivery")
	l.check(t, 2)
}
