package redisconsumer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// A Consumer is one member of a consumer group: it hands the entries of streams to a handler and
// acknowledges what the handler is done with. Make one with [NewConsumer]. All methods are safe for
// concurrent use.
type Consumer struct {
	client  redis.UniversalClient
	group   string
	sharded bool
	names   []string  // of the streams
	streams []*stream // and their backfills
	config  Config
	handler inbox.Handler
	log     *slog.Logger
	outages consumer.Outages
	counts  consumer.Counts
	running atomic.Pointer[run]
}

// A stream is what a consumer knows of one stream, over all its runs.
type stream struct {
	name, dead string
	source     string  // of its messages
	primary    *stream // whose backfill it is; nil for most
	joined     atomic.Bool
	counters   counters
}

// NewConsumer returns a consumer for streams, in a group that is created where it does not exist;
// Run starts it. It reports everything that is wrong with its arguments at once.
//
// The client is the caller's: a single node, Sentinel, Cluster or Ring. Each stream keeps one of
// its connections busy for reading, so its PoolSize has to be larger than the number of streams by
// a few. Commands that must not be repeated blindly are exempt from the client's own retries,
// whatever their number.
func NewConsumer(client redis.UniversalClient, group string, streams []string, handler inbox.Handler, config Config) (*Consumer, error) {
	wrong := config.complete(group, streams, handler)
	wrong.If(client == nil, "the client is nil: make one with redis.NewClient")
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	c := &Consumer{
		client: client, group: group, names: slices.Clone(streams), sharded: isSharded(client), config: config, handler: handler,
		log: config.Log.With("group", group, "consumer", config.Consumer),
	}
	for _, name := range streams {
		c.streams = append(c.streams, &stream{name: name, dead: config.DeadLetters(name), source: config.Source(name)})
	}
	if !config.WithoutBackfill {
		c.addBackfills()
	}
	c.outages.Log = c.log
	return c, nil
}

// Run reads and handles messages until ctx ends, and returns nil after a graceful stop: nothing
// more is read; handlers that run have the time of ShutdownTimeout; what they have done is
// acknowledged; everything else is released, so that other members of the group get it at once, and
// no attempt is counted; and the consumer leaves its group. It returns with an error when the
// server refuses to do what is needed at the very start (a wrong password, a missing right, a key
// that is no stream).
//
// An outage of Redis does not end it: it tries again until it is over. A consumer runs once at a
// time.
func (c *Consumer) Run(ctx context.Context) error {
	r := c.newRun(ctx)
	if !c.running.CompareAndSwap(nil, r) {
		return fmt.Errorf("redisconsumer: consume as %s: this consumer runs already", c.group)
	}
	defer c.running.Store(nil)
	if err := r.open(ctx); err != nil {
		r.Stop(func() {})
		return err
	}
	c.log.InfoContext(ctx, "consumer started", "streams", c.names, "workers", c.config.Workers, "name", c.config.Name)
	r.consume(ctx)
	c.log.InfoContext(ctx, "consumer stopped", "name", c.config.Name)
	return nil
}

// Stats returns the present figures. How far the group is behind, and what is known of each stream,
// [Consumer.Streams] says.
func (c *Consumer) Stats() inbox.ConsumerStats {
	if r := c.running.Load(); r != nil {
		return c.counts.Stats(r.Session)
	}
	return c.counts.Stats(nil)
}

func isSharded(client redis.UniversalClient) bool {
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return true
	}
	return false
}
