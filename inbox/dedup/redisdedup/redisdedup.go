package redisdedup

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox/dedup"
)

// defaultPrefix begins all keys where no other is given.
const defaultPrefix = "fanout:dedup:"

// pageSize bounds the commands of one round trip.
const pageSize = 500

// ErrReplicas is wrapped by the errors of writes that too few replicas have confirmed in time; see
// [WithReplicas].
var ErrReplicas = errors.New("too few replicas have confirmed the write")

// An Option changes a default.
type Option func(*settings)

type settings struct {
	prefix    string
	retention time.Duration
	replicas  int
	patience  time.Duration
}

// WithPrefix sets what all keys begin with; default "fanout:dedup:". Users of one server that are
// not to see each other's entries need different ones.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithRetention sets how long a [Store] remembers a message; default dedup.DefaultRetention, 168 h.
// It must be longer than copies can be on their way; see dedup.PurgeConfig. Tokens do not expire.
func WithRetention(d time.Duration) Option { return func(s *settings) { s.retention = d } }

// WithReplicas makes each write wait until n replicas have it, at most for patience, with the
// command WAIT. A write that fewer have confirmed is an error that wraps [ErrReplicas]: it is
// there, and not safe, and the processor repeats it. Patience must be shorter than the client's
// ReadTimeout (3 s by default). Default: no waiting.
func WithReplicas(n int, patience time.Duration) Option {
	return func(s *settings) { s.replicas, s.patience = n, patience }
}

// base is what both kinds have in common.
type base struct {
	settings

	client redis.UniversalClient
}

func newBase(client redis.UniversalClient, options []Option) (base, error) {
	b := base{client: client, settings: settings{prefix: defaultPrefix, retention: dedup.DefaultRetention}}
	for _, option := range options {
		option(&b.settings)
	}
	if client == nil {
		return b, errors.New("redisdedup: the client is missing")
	}
	switch c := client.(type) {
	case *redis.Ring:
		return b, errors.New("redisdedup: a redis.Ring forgets what was on a shard that is out, as it asks another one: use a cluster, or one server")
	case *redis.ClusterClient:
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return b, errors.New("redisdedup: the client may ask replicas, whose answers are late: leave ReadOnly, RouteByLatency and RouteRandomly off")
		}
	}
	if b.retention < time.Millisecond {
		return b, fmt.Errorf("redisdedup: the retention is %s: give at least 1 ms, or none for %s", b.retention, dedup.DefaultRetention)
	}
	if b.replicas < 0 || b.replicas > 0 && b.patience < time.Millisecond {
		return b, fmt.Errorf("redisdedup: WithReplicas(%d, %s): give a number and at least 1 ms (0 would wait forever)", b.replicas, b.patience)
	}
	return b, nil
}

// key of an entry. The consumer is escaped, so that no two pairs of consumer and value have one
// key.
func (b *base) key(kind, consumer, value string) string {
	return b.prefix + kind + ":" + url.QueryEscape(consumer) + ":" + value
}

// has reports whether a key is there.
func (b *base) has(ctx context.Context, key string) (bool, error) {
	n, err := b.client.Exists(ctx, key).Result()
	return n > 0, wrap("look", err)
}

// write sends a command for each key, and waits for replicas where it has to.
func (b *base) write(ctx context.Context, what string, keys []string, command func(redis.Pipeliner, string)) error {
	for len(keys) > 0 {
		page := keys[:min(pageSize, len(keys))]
		keys = keys[len(page):]
		groups, err := b.byServer(ctx, page)
		if err != nil {
			return wrap(what, err)
		}
		for server, keys := range groups {
			if err := b.send(ctx, server, keys, command); err != nil {
				return wrap(what, err)
			}
		}
	}
	return nil
}

// pipeliner is a client, or the client of one server of a cluster.
type pipeliner interface {
	Pipelined(ctx context.Context, fill func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// byServer groups keys so that WAIT comes after the writes on their own connection: it has no key,
// and a cluster would send it anywhere.
func (b *base) byServer(ctx context.Context, keys []string) (map[pipeliner][]string, error) {
	cluster, ok := b.client.(*redis.ClusterClient)
	if !ok || b.replicas == 0 {
		return map[pipeliner][]string{b.client: keys}, nil
	}
	groups := map[pipeliner][]string{}
	for _, key := range keys {
		server, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		groups[server] = append(groups[server], key)
	}
	return groups, nil
}

func (b *base) send(ctx context.Context, server pipeliner, keys []string, command func(redis.Pipeliner, string)) error {
	var confirmed *redis.Cmd
	_, err := server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			command(pipe, key)
		}
		if b.replicas > 0 {
			confirmed = pipe.Do(ctx, "WAIT", b.replicas, b.patience.Milliseconds())
		}
		return nil
	})
	if err != nil || confirmed == nil {
		return err
	}
	n, err := confirmed.Int()
	if err == nil && n < b.replicas {
		err = fmt.Errorf("%w: %d of %d within %s", ErrReplicas, n, b.replicas, b.patience)
	}
	return err
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisdedup: %s: %w", what, err)
}

// Store is a dedup.Store. It is safe for concurrent use.
type Store struct{ base }

// New returns a store. The error is that of the client's kind, or of an option; no server is asked.
func New(client redis.UniversalClient, opts ...Option) (*Store, error) {
	b, err := newBase(client, opts)
	if err != nil {
		return nil, err
	}
	return &Store{b}, nil
}

// Contains implements dedup.Store.
func (s *Store) Contains(ctx context.Context, consumer string, key uuid.UUID) (bool, error) {
	return s.has(ctx, s.key("handled", consumer, key.String()))
}

// Add implements dedup.Store. The entry expires after the retention, by the server's clock. One
// that is there stays as it is; where replicas are waited for it is written again, as there would
// be nothing to wait for otherwise, and lives longer.
func (s *Store) Add(ctx context.Context, consumer string, key uuid.UUID, at time.Time) error {
	if err := dedup.ValidateConsumer(consumer); err != nil {
		return err
	}
	return s.write(ctx, "add", []string{s.key("handled", consumer, key.String())}, func(pipe redis.Pipeliner, key string) {
		if s.replicas > 0 {
			pipe.Set(ctx, key, at.UnixMicro(), s.retention)
		} else {
			pipe.SetNX(ctx, key, at.UnixMicro(), s.retention)
		}
	})
}
