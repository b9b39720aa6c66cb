package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

const (
	redisVariable     = "FANOUT_TEST_CHILD_REDIS"
	chaosSeedVariable = "FANOUT_TEST_CHILD_SEED"
)

// chaos is Redis Streams on a bad day: slow at times, some messages are refused, and some answers
// get lost.
type chaos struct {
	confirming

	inner  *redisstreams.Broker
	random *rand.Rand
	turn   chan struct{} // of whoever uses random
}

func newChaos() (brokers.Broker, outbox.Policy, error) {
	seed, err := strconv.ParseUint(os.Getenv(chaosSeedVariable), 10, 64)
	if err != nil {
		return nil, outbox.Policy{}, err
	}
	inner, err := redisstreams.Open(redisstreams.Settings{URL: adapter.Secret(os.Getenv(redisVariable))})
	policy := shortLease()
	policy.BatchSize, policy.PollMin, policy.PollMax = 200, 5*time.Millisecond, 50*time.Millisecond
	policy.Retry = outbox.Retry{MaxAttempts: 1000, BaseDelay: 20 * time.Millisecond, MaxDelay: 300 * time.Millisecond}
	return &chaos{inner: inner, random: rand.New(rand.NewPCG(seed, 0)), turn: make(chan struct{}, 1)}, policy, err
}

var (
	errRefused = brokers.Retryable(errors.New("refused"))
	errLost    = brokers.Retryable(errors.New("the answer got lost"))
)

func (c *chaos) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	c.turn <- struct{}{}
	pause := time.Duration(0)
	if c.random.IntN(10) == 0 {
		pause = time.Duration(c.random.IntN(int(50 * time.Millisecond)))
	}
	unanswered := c.random.IntN(100) == 0
	refused := map[int]bool{}
	for i := range msgs {
		refused[i] = c.random.IntN(200) == 0
	}
	<-c.turn

	results := make([]brokers.Result, len(msgs))
	failed, kept, places := map[string]bool{}, []brokers.Message{}, []int{}
	for i, m := range msgs {
		switch {
		case failed[m.OrderingKey]:
			results[i].Err = brokers.ErrNotSent
		case refused[i]:
			results[i].Err, failed[m.OrderingKey] = errRefused, true
		default:
			kept, places = append(kept, m), append(places, i)
		}
	}
	half := len(kept) / 2 // a process can be killed between the two
	for i, result := range c.inner.Publish(ctx, kept[:half]) {
		results[places[i]] = result
	}
	<-time.After(pause)
	if half > 0 && results[places[half-1]].Err != nil { // an outage that we did not make
		for _, place := range places[half:] {
			results[place].Err = brokers.ErrNotSent
		}
		return results
	}
	for i, result := range c.inner.Publish(ctx, kept[half:]) {
		results[places[half+i]] = result
	}
	if unanswered {
		for _, place := range places {
			results[place] = brokers.Result{Err: errLost}
		}
	}
	return results
}

// crowd are the writers of a table, and what they have committed.
type crowd struct {
	*place

	stream  string
	written atomic.Int64
	last    map[string]*int64 // by key, which belongs to one writer
}

// write inserts the next message of each of the keys in one transaction, in this order, and commits
// or rolls back.
func (c *crowd) write(ctx context.Context, keys []string, commit func() bool) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	next := map[string]int64{}
	rows := make([]outbox.Row, len(keys))
	for i, key := range keys {
		if next[key] == 0 {
			next[key] = *c.last[key]
		}
		next[key]++
		rows[i] = outbox.Row{
			MessageID: uuid.New(), TargetBroker: "b", Stream: c.stream, Type: "T", OrderingKey: key, Payload: fmt.Appendf(nil, `{"key":%q,"n":%d}`, key, next[key]),
		}
	}
	if err := insertRows(ctx, c.driver, tx, rows); err != nil {
		return err
	}
	if !commit() {
		return nil
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for key, n := range next {
		*c.last[key] = n
	}
	c.written.Add(int64(len(keys)))
	return nil
}

// Four relays deliver 200 keys from writers that commit in any order, one of them very late, to a
// broker that is slow, refuses and forgets to answer; and again and again one of the relays is
// killed. Of each key every message arrives, and the first arrivals are in order.
func TestOrderUnderFire(t *testing.T) {
	t.Parallel()
	onServers(t, testOrderUnderFire)
}

func testOrderUnderFire(t *testing.T, p *place) {
	t.Helper()
	messages := 3_000
	if testenv.Long() {
		messages = 50_000
	}
	const writers, keysEach, lateKeys, relays, perTransaction = 4, 48, 8, 4, 50
	seed := uint64(testenv.Seed(t))
	redisURL, stream := testenv.Redis(t), testenv.RedisPrefix(t)+"stream"
	p.migrate()
	options, err := redis.ParseURL(redisURL)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	c := &crowd{place: p, stream: stream, last: map[string]*int64{}}

	group, ctx := errgroup.WithContext(t.Context())
	arrived := func() int64 {
		n, err := client.XLen(ctx, stream).Result()
		if err != nil {
			return 0
		}
		return n
	}
	always := func() bool { return true }
	names := func(who string, n int) []string {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("%s-%d", who, i)
			c.last[keys[i]] = new(int64)
		}
		return keys
	}
	late := names("late", lateKeys)
	keysOf := make([][]string, writers)
	for w := range keysOf {
		keysOf[w] = names(fmt.Sprint("writer-", w), keysEach)
	}
	for w, keys := range keysOf {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		group.Go(func() error {
			for range messages / writers / perTransaction {
				rows := make([]string, perTransaction)
				for i := range rows {
					rows[i] = keys[random.IntN(len(keys))]
				}
				if random.IntN(20) == 0 {
					if err := c.write(ctx, rows, func() bool { return false }); err != nil {
						return err
					}
				}
				if err := c.write(ctx, rows, always); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error { // its ids are older than thousands that are delivered before it commits
		for part := range int64(3) {
			for range 3 {
				if err := c.write(ctx, late, func() bool {
					return poll(ctx, func() bool { return arrived() >= min(int64(messages)*(part+1)/4, c.written.Load()*9/10) })
				}); err != nil {
					return err
				}
			}
		}
		return nil
	})

	random := rand.New(rand.NewPCG(seed, 99))
	start := func() *process {
		return startChild(p, "chaos", redisVariable+"="+redisURL, chaosSeedVariable+"="+strconv.FormatUint(random.Uint64(), 10))
	}
	running := make([]*process, relays)
	for i := range running {
		running[i] = start()
	}
	kills := 0
	for target := int64(messages) / 10; target < int64(messages)*9/10; target += int64(messages) / 10 {
		require.True(t, poll(ctx, func() bool { return arrived() >= target }), "%v", context.Cause(ctx))
		victim := random.IntN(relays)
		running[victim].kill()
		require.Empty(t, running[victim].complaints())
		running[victim] = start()
		kills++
	}
	require.NoError(t, group.Wait())
	require.True(t, poll(t.Context(), func() bool { return p.count("finished_at IS NULL") == 0 }))
	for _, relay := range running {
		relay.stop(t)
	}

	seen, entries := map[string]int64{}, 0
	for from := "-"; ; {
		page, err := client.XRangeN(t.Context(), stream, from, "+", 5000).Result()
		require.NoError(t, err)
		for _, entry := range page {
			var m struct {
				Key string
				N   int64
			}
			require.NoError(t, json.Unmarshal([]byte(entry.Values["data"].(string)), &m))
			require.LessOrEqual(t, m.N, seen[m.Key]+1, "key %s: message %d arrived before %d, at %s", m.Key, m.N, seen[m.Key]+1, entry.ID)
			seen[m.Key] = max(seen[m.Key], m.N)
			from = "(" + entry.ID
		}
		if entries += len(page); len(page) == 0 {
			break
		}
	}
	want := map[string]int64{}
	for key, last := range c.last {
		want[key] = *last
	}
	assert.Equal(t, want, seen)
	t.Logf("%d messages of %d keys, %d arrivals, %d kills", c.written.Load(), len(want), entries, kills)
	assert.Len(t, want, 200)
}

// poll waits for other processes until the condition holds, for two minutes at most.
func poll(ctx context.Context, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
