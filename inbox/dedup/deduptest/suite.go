package deduptest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox/dedup"
)

// names of consumers that must be distinguished.
var names = []string{
	"billing", "Billing", "bílling", "bi:lling", "bi", "bi*lling", "bi?lling", "bi%lling", "bi_lling", `bi'"\lling`, "[a-z]{x}",
	strings.Repeat("x", dedup.MaxConsumer), strings.Repeat("x", dedup.MaxConsumer-1) + "y",
}

// RunStore tests a store of handled messages. open returns an empty one; it must be able to hold
// entries of any time of the last hour. Where it is a [dedup.Purger] too, that is tested as well.
func RunStore(t *testing.T, open func(*testing.T) dedup.Store) {
	memory := func(t *testing.T) *memory {
		t.Helper()
		s := open(t)
		m := &memory{
			add: func(ctx context.Context, consumer, value string, at time.Time) error {
				return s.Add(ctx, consumer, uuid.MustParse(value), at)
			},
			has: func(ctx context.Context, consumer, value string) (bool, error) {
				return s.Contains(ctx, consumer, uuid.MustParse(value))
			},
			value: func(n int) string { return uuid.NewSHA1(uuid.Nil, fmt.Append(nil, n)).String() },
		}
		if purger, ok := s.(dedup.Purger); ok {
			m.purge = purger.PurgeOlderThan
		}
		return m
	}
	runMemory(t, memory)
	t.Run("refuses", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		require.ErrorContains(t, s.Add(t.Context(), "", uuid.New(), time.Now()), "no consumer")
		require.ErrorContains(t, s.Add(t.Context(), strings.Repeat("x", dedup.MaxConsumer+1), uuid.New(), time.Now()), "at most 256")
		require.ErrorContains(t, s.Add(t.Context(), "billing ", uuid.New(), time.Now()), "spaces")
	})
}

// RunTokens tests a store of tokens. open returns an empty one.
func RunTokens(t *testing.T, open func(*testing.T) dedup.Tokens) {
	runMemory(t, func(t *testing.T) *memory {
		t.Helper()
		s := open(t)
		return &memory{
			add: func(ctx context.Context, consumer, value string, at time.Time) error {
				return s.Create(ctx, []dedup.Token{{Consumer: consumer, Value: value}}, at)
			},
			has: func(ctx context.Context, consumer, value string) (bool, error) {
				return s.Exists(ctx, dedup.Token{Consumer: consumer, Value: value})
			},
			purge: s.PurgeOlderThan,
			value: func(n int) string { return fmt.Sprintf("Token:%d*?'\"", n) },
		}
	})
	t.Run("many at once", func(t *testing.T) {
		t.Parallel()
		manyTokens(t, open(t))
	})
	t.Run("no two are alike", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		require.NoError(t, s.Create(t.Context(), []dedup.Token{{Consumer: "a:b", Value: "c"}, {Consumer: "a%3Ab", Value: "d"}}, time.Now()))
		for _, other := range []dedup.Token{{Consumer: "a", Value: "b:c"}, {Consumer: "a:b", Value: "C"}, {Consumer: "a:b", Value: "d"}, {Consumer: "a%3Ab", Value: "c"}} {
			there, err := s.Exists(t.Context(), other)
			require.NoError(t, err)
			require.False(t, there, "%v", other)
		}
	})
	t.Run("removed", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		one, two, other := dedup.Token{Consumer: "a", Value: "1"}, dedup.Token{Consumer: "a", Value: "2"}, dedup.Token{Consumer: "b", Value: "1"}
		require.NoError(t, s.Create(t.Context(), []dedup.Token{one, two, other}, time.Now()))
		for range 2 {
			require.NoError(t, s.Remove(t.Context(), []dedup.Token{one, {Consumer: "c", Value: "never"}}))
			for token, want := range map[dedup.Token]bool{one: false, two: true, other: true} {
				there, err := s.Exists(t.Context(), token)
				require.NoError(t, err)
				require.Equal(t, want, there, "%v", token)
			}
		}
	})
	t.Run("refuses", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		good := dedup.Token{Consumer: "a", Value: "good"}
		for want, bad := range map[string]dedup.Token{
			"empty": {Consumer: "a"}, "no consumer": {Value: "x"}, "visible ASCII": {Consumer: "a", Value: "tö"},
			"128": {Consumer: "a", Value: strings.Repeat("x", dedup.MaxToken+1)},
		} {
			require.ErrorContains(t, s.Create(t.Context(), []dedup.Token{good, bad}, time.Now()), want)
		}
		there, err := s.Exists(t.Context(), good)
		require.NoError(t, err)
		require.False(t, there, "all or none, where it can be told before")
	})
}

func manyTokens(t *testing.T, s dedup.Tokens) {
	t.Helper()
	require.NoError(t, s.Create(t.Context(), nil, time.Now()))
	require.NoError(t, s.Remove(t.Context(), nil))
	var tokens []dedup.Token
	for n := range 1500 { // more than one statement takes anywhere
		tokens = append(tokens, dedup.Token{Consumer: fmt.Sprint("consumer ", n%3), Value: fmt.Sprint(n)})
	}
	require.NoError(t, s.Create(t.Context(), tokens, time.Now()))
	for _, n := range []int{0, 1, 749, 1499} {
		there, err := s.Exists(t.Context(), tokens[n])
		require.NoError(t, err)
		require.True(t, there)
	}
	require.NoError(t, s.Remove(t.Context(), tokens[1:]))
	for n, want := range map[int]bool{0: true, 1: false, 749: false, 1499: false} {
		there, err := s.Exists(t.Context(), tokens[n])
		require.NoError(t, err)
		require.Equal(t, want, there)
	}
}

// memory is what both kinds have in common.
type memory struct {
	add   func(ctx context.Context, consumer, value string, at time.Time) error
	has   func(ctx context.Context, consumer, value string) (bool, error)
	purge func(ctx context.Context, before time.Time, limit int) (int64, error)
	value func(n int) string
}

func (m *memory) want(t *testing.T, want bool, consumer, value string) {
	t.Helper()
	has, err := m.has(t.Context(), consumer, value)
	require.NoError(t, err)
	require.Equal(t, want, has, "%q of %q", value, consumer)
}

func runMemory(t *testing.T, open func(*testing.T) *memory) {
	t.Run("one by one", func(t *testing.T) {
		t.Parallel()
		m := open(t)
		for n, name := range names {
			for _, later := range names[n:] {
				m.want(t, false, later, m.value(1))
			}
			for range 2 {
				require.NoError(t, m.add(t.Context(), name, m.value(1), time.Now()))
				m.want(t, true, name, m.value(1))
				m.want(t, false, name, m.value(2))
			}
		}
	})
	t.Run("concurrently", func(t *testing.T) {
		t.Parallel()
		m := open(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for n := range 20 {
					assert.NoError(t, m.add(t.Context(), "billing", m.value(n), time.Now()))
					// Whoever adds what another session is just committing is told so by MariaDB an instant before reads see it.
					assert.Eventually(t, func() bool {
						has, err := m.has(t.Context(), "billing", m.value(n))
						return assert.NoError(t, err) && has
					}, time.Minute, time.Millisecond)
				}
			})
		}
		all.Wait()
	})
	t.Run("by age", func(t *testing.T) {
		t.Parallel()
		byAge(t, open(t))
	})
	t.Run("a context that has ended", func(t *testing.T) {
		t.Parallel()
		m := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, m.add(ctx, "billing", m.value(1), time.Now()))
		_, err := m.has(ctx, "billing", m.value(1))
		require.Error(t, err)
		m.want(t, false, "billing", m.value(1))
	})
}

func byAge(t *testing.T, m *memory) {
	t.Helper()
	if m.purge == nil {
		t.Skip("it forgets by itself")
	}
	const all, old = 10, 7
	now := time.Now().UTC().Truncate(time.Microsecond)
	for n := range all { // the oldest first
		require.NoError(t, m.add(t.Context(), names[n%2], m.value(n), now.Add(time.Duration(n-all)*time.Minute)))
	}
	require.NoError(t, m.add(t.Context(), names[0], m.value(0), now), "again, later: it stays as old as it is, or becomes younger")
	require.NoError(t, m.add(t.Context(), names[1], m.value(1), now))
	before := now.Add((old - all) * time.Minute)
	var removed int64
	for {
		n, err := m.purge(t.Context(), before, 2)
		require.NoError(t, err)
		require.LessOrEqual(t, n, int64(2))
		removed += n
		if n < 2 {
			break
		}
	}
	require.Contains(t, []int64{old, old - 2}, removed)
	for n := 2; n < all; n++ { // the one that is just as old as the limit stays
		m.want(t, n >= old, names[n%2], m.value(n))
	}
	n, err := m.purge(t.Context(), before, 2)
	require.NoError(t, err)
	require.Zero(t, n)
}
