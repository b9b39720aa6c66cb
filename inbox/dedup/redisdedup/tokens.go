package redisdedup

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox/dedup"
)

// Tokens is a dedup.Tokens. It is safe for concurrent use. Read what the package says about lost
// tokens before you use it.
type Tokens struct{ base }

// NewTokens returns the tokens of a server or cluster. The error is that of the client's kind, or
// of an option; no server is asked.
func NewTokens(client redis.UniversalClient, opts ...Option) (*Tokens, error) {
	b, err := newBase(client, opts)
	if err != nil {
		return nil, err
	}
	return &Tokens{b}, nil
}

// keys of tokens.
func (t *Tokens) keys(tokens []dedup.Token) []string {
	keys := make([]string, len(tokens))
	for i, token := range tokens {
		keys[i] = t.key("token", token.Consumer, token.Value)
	}
	return keys
}

// Create implements dedup.Tokens. After an error some of them may have been created, or be created
// later: who repeats it himself has to draw others. The client's own retries do not apply.
func (t *Tokens) Create(ctx context.Context, tokens []dedup.Token, at time.Time) error {
	for _, token := range tokens {
		if err := token.Validate(); err != nil {
			return err
		}
	}
	return t.write(ctx, "create", t.keys(tokens), func(pipe redis.Pipeliner, key string) {
		_ = pipe.Process(ctx, once{redis.NewStatusCmd(ctx, "set", key, at.UnixMicro())}) // it only queues
	})
}

// once is a command that the client must not send again by itself: it would tell of a success while
// the first one can still be on its way, and bring back, later, a token that was used up. Of an
// error the processor draws another token.
type once struct{ redis.Cmder }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// Exists implements dedup.Tokens.
func (t *Tokens) Exists(ctx context.Context, token dedup.Token) (bool, error) {
	return t.has(ctx, t.key("token", token.Consumer, token.Value))
}

// Remove implements dedup.Tokens. After an error some of them may have been removed.
func (t *Tokens) Remove(ctx context.Context, tokens []dedup.Token) error {
	return t.write(ctx, "remove", t.keys(tokens), func(pipe redis.Pipeliner, key string) { pipe.Del(ctx, key) })
}

// literal takes the meaning from the characters of a pattern.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// PurgeOlderThan implements dedup.Purger, by going through all keys of all servers: let hours pass
// between two runs. The oldest do not come first.
func (t *Tokens) PurgeOlderThan(ctx context.Context, before time.Time, limit int) (int64, error) {
	p := &purge{Tokens: t, before: before.UnixMicro(), left: int64(limit)}
	var err error
	if cluster, ok := t.client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error { return p.server(ctx, server) })
	} else {
		err = p.server(ctx, t.client)
	}
	return int64(limit) - p.left, wrap("purge", err)
}

// purge is one call. The servers of a cluster are gone through at the same time.
type purge struct {
	*Tokens

	before int64
	mu     sync.Mutex
	left   int64
}

func (p *purge) server(ctx context.Context, server redis.Cmdable) error {
	for cursor := uint64(0); ; {
		keys, next, err := server.Scan(ctx, cursor, literal.Replace(p.prefix)+"token:*", pageSize).Result()
		if err != nil {
			return err
		}
		full, err := p.page(ctx, server, keys)
		if err != nil || full || next == 0 {
			return err
		}
		cursor = next
	}
}

// page removes what is old among keys.
func (p *purge) page(ctx context.Context, server redis.Cmdable, keys []string) (full bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left <= 0 || len(keys) == 0 {
		return p.left <= 0, nil
	}
	made, err := server.Pipelined(ctx, func(pipe redis.Pipeliner) error { // no MGET: in a cluster it wants keys of one slot
		for _, key := range keys {
			pipe.Get(ctx, key)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // of one that was removed meanwhile
		return false, err
	}
	var old []string
	for i, answer := range made {
		at, err := strconv.ParseInt(answer.(*redis.StringCmd).Val(), 10, 64) //nolint:forcetypeassert // Get made it
		if err == nil && at < p.before && int64(len(old)) < p.left {
			old = append(old, keys[i])
		}
	}
	if len(old) == 0 {
		return false, nil
	}
	removed, err := server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range old {
			pipe.Del(ctx, key)
		}
		return nil
	})
	for _, answer := range removed {
		p.left -= answer.(*redis.IntCmd).Val() //nolint:forcetypeassert // Del made it
	}
	return p.left <= 0, err
}
