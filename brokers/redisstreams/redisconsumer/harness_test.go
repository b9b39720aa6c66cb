package redisconsumer_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumertest"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // failed dials are what some of these tests are about
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	consumertest.Main(m, conformingChild,
		// Looks once a second whether the server is back; after Close it ends the next time it
		// wakes up.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

const group = "billing"

// claimAfter is how long a process may be silent in most tests.
const claimAfter = 400 * time.Millisecond

// quick are the times of a consumer that a test can wait for, where it says nothing else.
func quick(given ...redisconsumer.Config) (config redisconsumer.Config) {
	if len(given) > 0 {
		config = given[0]
	}
	config.ClaimAfter, config.Block = cmp.Or(config.ClaimAfter, claimAfter), cmp.Or(config.Block, 50*time.Millisecond)
	config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	if config.Retry == (inbox.Retry{}) {
		config.Retry = inbox.Retry{BaseDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond}
	}
	return config
}

// A site is a server and a stream of this test's own.
type site struct {
	*redis.Client

	stream string
}

func newSite(t testing.TB) *site {
	t.Helper()
	return &site{connect(t, testenv.Redis(t)), testenv.RedisPrefix(t) + "ordering::order"}
}

func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	settings, err := redis.ParseURL(url)
	require.NoError(t, err)
	settings.PoolSize = 50
	client := redis.NewClient(settings)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// soon polls until holds is true. Where it never is, it says what consumers and clients wait for.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if assert.Eventually(t, holds, 30*time.Second, 2*time.Millisecond, what) {
		return
	}
	var stacks strings.Builder
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, "redis") {
			t.Log(stack)
		}
	}
	t.FailNow()
}

type placed struct{ N int }

var catalog = func() *envelope.Catalog {
	c := envelope.NewCatalog("ordering")
	envelope.Register[placed](c, envelope.Published(), envelope.Name("OrderPlaced"))
	return c
}()

// sealed is the n-th message of an order, as the outbox writes it.
func sealed(t testing.TB, order string, n int) *envelope.Message {
	t.Helper()
	m, err := catalog.Seal(envelope.NewEvent(placed{n}), envelope.Source{Aggregate: "Order", ID: order}, envelope.Context{})
	require.NoError(t, err)
	return m
}

// add adds the n-th message of an order to a stream; it answers with the entry's id.
func (s *site) add(t testing.TB, order string, n int) string {
	t.Helper()
	payload, err := sealed(t, order, n).MarshalInternal()
	require.NoError(t, err)
	id, err := s.XAdd(t.Context(), &redis.XAddArgs{Stream: s.stream, Values: []any{"data", payload, "id", "x", "type", "T", "ordering_key", order}}).Result()
	require.NoError(t, err)
	return id
}

// addAll adds messages 0 to n-1, to orders by turns.
func (s *site) addAll(t testing.TB, orders, n int) {
	t.Helper()
	for i := range n {
		s.add(t, fmt.Sprint(i%orders), i)
	}
}

// pending is how many entries are pending in the group, -1 = there is none.
func (s *site) pending(testing.TB) int {
	summary, err := s.XPending(context.Background(), s.stream, group).Result()
	if err != nil {
		return -1
	}
	return int(summary.Count)
}

func (s *site) dead(t testing.TB) []redis.XMessage {
	t.Helper()
	letters, err := s.XRange(context.Background(), redisconsumer.DeadStream(s.stream, group), "-", "+").Result()
	require.NoError(t, err)
	return letters
}

// A ledger notes what was handled, and that no two messages of a key were handled at once.
type ledger struct {
	mu      sync.Mutex
	byOrder map[string][]int
	times   map[int]int
	under   map[string]bool
	flaws   []string
}

func newLedger() *ledger {
	return &ledger{byOrder: map[string][]int{}, times: map[int]int{}, under: map[string]bool{}}
}

func number(m *inbox.Message) int {
	var p placed
	if err := json.Unmarshal(m.Envelope.Data, &p); err != nil {
		panic(err)
	}
	return p.N
}

// handler notes each message after inner, which may be nil, has returned without an error.
func (l *ledger) handler(inner func(ctx context.Context, m *inbox.Message, n int) error) inbox.HandlerFunc {
	return func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		key, n := m.OrderingKey, number(m)
		l.mu.Lock()
		if l.under[key] {
			l.flaws = append(l.flaws, "two at once of "+key)
		}
		l.under[key] = true
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.under[key] = false
			l.mu.Unlock()
		}()
		if inner != nil {
			if err := inner(ctx, m, n); err != nil {
				return "", err
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.byOrder[key] = append(l.byOrder[key], n)
		l.times[n]++
		return inbox.Handled, nil
	}
}

// len is how many different messages were handled.
func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times)
}

// check wants each of n messages handled once, in order for each key.
func (l *ledger) check(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.flaws)
	assert.Len(t, l.times, n)
	for key, numbers := range l.byOrder {
		assert.IsIncreasing(t, numbers, key)
	}
	for n, times := range l.times {
		if times != 1 {
			assert.Equal(t, 1, times, "message %d", n)
		}
	}
}

// A run is a consumer that runs.
type run struct {
	*redisconsumer.Consumer

	cancel context.CancelFunc
	done   chan error
}

// start runs a consumer until the test ends, or stop is called.
func start(t *testing.T, client redis.UniversalClient, stream string, handler inbox.Handler, config ...redisconsumer.Config) *run {
	t.Helper()
	c, err := redisconsumer.NewConsumer(client, group, []string{stream}, handler, quick(config...))
	require.NoError(t, err)
	return launch(t, c)
}

func launch(t *testing.T, c *redisconsumer.Consumer) *run {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{c, cancel, make(chan error, 1)}
	go func() { r.done <- c.Run(ctx) }()
	t.Cleanup(func() { r.stop(t) })
	return r
}

// stop stops it gracefully.
func (r *run) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case err, open := <-r.done:
		if open {
			assert.NoError(t, err)
			close(r.done)
		}
	case <-time.After(30 * time.Second):
		assert.Fail(t, "the consumer does not stop")
	}
}

// figures are those of the consumer, and of its only stream.
type figures struct {
	redisconsumer.StreamStats
	inbox.ConsumerStats

	Claimed int // of the stream
}

// stats are the present figures; those of the server are zero while it has no group.
func (r *run) stats(*testing.T) figures {
	all, _ := r.Streams(context.Background())
	return figures{all[0], r.Stats(), all[0].Claimed}
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func (j *journal) lines(parts ...string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
lines:
	for line := range strings.Lines(j.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}
