package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/dedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/redisdedup"
	"github.com/gorm-fanout/fanout/inbox/dedup/sqldedup"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// fate lets things fail: before they are done, or after.
type fate struct {
	mu     sync.Mutex
	random *rand.Rand
}

var errFate = errors.New("it was not to be")

func (f *fate) strikes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(20) == 0
}

func (f *fate) around(do func() error) error {
	if f.strikes() {
		return errFate
	}
	err := do()
	if err == nil && f.strikes() {
		return errFate
	}
	return err
}

// struck is everything that a processor uses, with failures.
type struck struct {
	*fate

	entities dedup.Entities[account]
	store    dedup.Store
	tokens   dedup.Tokens
}

func (s struck) Load(ctx context.Context, id string) (e dedup.Entity[account], err error) {
	return e, s.around(func() error { e, err = s.entities.Load(ctx, id); return err })
}

func (s struck) Save(ctx context.Context, id string, e dedup.Entity[account]) (version dedup.Version, err error) {
	err = s.around(func() error { version, err = s.entities.Save(ctx, id, e); return err })
	if err == nil && s.strikes() {
		err = dedup.ErrConflict // a client that repeats by itself, and meets itself
	}
	return version, err
}

func (s struck) Contains(ctx context.Context, consumer string, key uuid.UUID) (has bool, err error) {
	return has, s.around(func() error { has, err = s.store.Contains(ctx, consumer, key); return err })
}

func (s struck) Add(ctx context.Context, consumer string, key uuid.UUID, at time.Time) error {
	return s.around(func() error { return s.store.Add(ctx, consumer, key, at) })
}

func (s struck) Create(ctx context.Context, tokens []dedup.Token, at time.Time) error {
	return s.around(func() error { return s.tokens.Create(ctx, tokens, at) })
}

func (s struck) Exists(ctx context.Context, token dedup.Token) (has bool, err error) {
	return has, s.around(func() error { has, err = s.tokens.Exists(ctx, token); return err })
}

func (s struck) Remove(ctx context.Context, tokens []dedup.Token) error {
	return s.around(func() error { return s.tokens.Remove(ctx, tokens) })
}

func (s struck) PurgeOlderThan(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.tokens.PurgeOlderThan(ctx, before, limit)
}

// broker delivers at least once: often twice, and again what was not confirmed.
type broker struct {
	*fate

	mu    sync.Mutex
	news  *sync.Cond
	queue []*inbox.Message
	open  int // deliveries that have not ended
	sent  map[string]bool
}

func (b *broker) push(m *inbox.Message, copies int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range copies {
		b.queue = append(b.queue, m)
		n := len(b.queue)
		if at := int(m.Key[15]) % n; n > 1 {
			b.queue[at], b.queue[n-1] = b.queue[n-1], b.queue[at]
		}
	}
	b.news.Broadcast()
}

// pop waits for a message, and returns nil when none will come any more.
func (b *broker) pop() *inbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 {
		if b.open == 0 {
			return nil
		}
		b.news.Wait()
	}
	m := b.queue[0]
	b.queue = b.queue[1:]
	b.open++
	return m
}

func (b *broker) done(m *inbox.Message, err error) {
	if err != nil {
		b.push(m, 1)
	}
	b.mu.Lock()
	b.open--
	b.news.Broadcast()
	b.mu.Unlock()
}

// Dispatch implements dedup.Dispatcher: it goes to the auditor.
func (b *broker) Dispatch(_ context.Context, messages []dedup.Outgoing) error {
	return b.around(func() error {
		for _, o := range messages {
			b.mu.Lock()
			b.sent[o.Token] = true
			b.mu.Unlock()
			b.push(&inbox.Message{Consumer: "auditor", Key: o.ID, ID: o.ID.String(), OrderingKey: o.Destination, Attributes: o.Fields()}, 2)
		}
		return nil
	})
}

// Eight workers, real servers, every operation failing now and then: all sums are exact.
func TestRealParts(t *testing.T) {
	t.Parallel()
	parts := map[string]func(t *testing.T) struck{
		"entities in redis, memory in postgres": func(t *testing.T) struck {
			db := openPostgres(t)
			_, err := sqldedup.Migrate(t.Context(), db)
			require.NoError(t, err)
			store, err := sqldedup.New(db)
			require.NoError(t, err)
			tokens, err := sqldedup.NewTokens(db)
			require.NoError(t, err)
			return struck{entities: &redisAccounts{openRedis(t), testenv.RedisPrefix(t)}, store: store, tokens: tokens}
		},
		"entities in sqlite, memory in redis": func(t *testing.T) struck {
			client, prefix := openRedis(t), redisdedup.WithPrefix(testenv.RedisPrefix(t))
			store, err := redisdedup.New(client, prefix)
			require.NoError(t, err)
			tokens, err := redisdedup.NewTokens(client, prefix)
			require.NoError(t, err)
			return struck{entities: newGormAccounts(t, openSQLite(t)), store: store, tokens: tokens}
		},
	}
	for name, open := range parts {
		for _, byToken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, tokens=%t", name, byToken), func(t *testing.T) {
				t.Parallel()
				seed := uint64(testenv.Seed(t))
				s := open(t)
				s.fate = &fate{random: rand.New(rand.NewPCG(seed, 1))}
				exactSums(t, s, byToken)
			})
		}
	}
}

func exactSums(t *testing.T, s struck, byToken bool) {
	t.Helper()
	const accounts, messages, workers = 3, 40, 8
	b := &broker{fate: s.fate, sent: map[string]bool{}}
	b.news = sync.NewCond(&b.mu)
	config := dedup.Config[account]{Entities: s, EntityID: func(m *inbox.Message) (string, error) { return m.OrderingKey, nil }, Dispatch: b, Conflicts: 100}
	if byToken {
		config.Tokens, config.TokenOf = s, dedup.KeyToken
	} else {
		config.Store = s
	}
	config.Handle = func(_ context.Context, state *account, m *inbox.Message) ([]dedup.Outgoing, error) {
		state.Sum += int(m.Key[0])
		out := dedup.Outgoing{Destination: "audit of " + m.OrderingKey}
		if byToken {
			out.Receivers = []string{"auditor"}
		}
		return []dedup.Outgoing{out}, nil
	}
	tellers, err := dedup.New(config)
	require.NoError(t, err)
	config.Handle = func(_ context.Context, state *account, _ *inbox.Message) ([]dedup.Outgoing, error) {
		state.Sum++
		return nil, nil
	}
	auditors, err := dedup.New(config)
	require.NoError(t, err)

	sums, counts := map[string]int{}, map[string]int{}
	for n := range messages {
		m := newMessage()
		m.OrderingKey = fmt.Sprint("account ", n%accounts)
		sums[m.OrderingKey] += int(m.Key[0])
		counts["audit of "+m.OrderingKey]++
		require.NoError(t, s.tokens.Create(t.Context(), []dedup.Token{{Consumer: m.Consumer, Value: m.Key.String()}}, time.Now()))
		b.push(m, 2)
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for m := b.pop(); m != nil; m = b.pop() {
				processor := tellers
				if m.Consumer == "auditor" {
					processor = auditors
				}
				_, err := processor.Handle(t.Context(), m)
				b.done(m, err)
			}
		})
	}
	all.Wait()

	for _, want := range []map[string]int{sums, counts} {
		for id, sum := range want {
			e, err := s.entities.Load(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, sum, e.State.Sum, id)
			assert.True(t, e.Outbox.Empty(), id)
		}
	}
	if byToken {
		for token := range b.sent {
			there, err := s.tokens.Exists(t.Context(), dedup.Token{Consumer: "auditor", Value: token})
			require.NoError(t, err)
			assert.False(t, there, "a token that travelled is used up")
		}
		left, err := s.tokens.PurgeOlderThan(t.Context(), time.Now().Add(time.Hour), 1000)
		require.NoError(t, err)
		t.Logf("%d tokens were sent, %d drawn in vain were left to age", len(b.sent), left)
	}
}
