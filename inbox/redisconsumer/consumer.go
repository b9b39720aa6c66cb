package redisconsumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/inbox"
)

// A Consumer is one member of a consumer group: it hands the entries of streams to a handler and
// acknowledges what the handler is done with. Make one with [NewConsumer]. All methods are safe for
// concurrent use.
type Consumer struct {
	settings

	client  redis.UniversalClient
	group   string
	sharded bool
	streams []*stream
	runner  inbox.Runner
	outages outages
	active  atomic.Bool
	// handlers are under way, those included that a run has left behind.
	handlers atomic.Int64
}

// A stream is what this consumer knows of one stream, and has claimed of it.
type stream struct {
	name, dead string
	source     string  // of its messages
	primary    *stream // whose backfill it is; nil for most
	counters   counters
	// loaded and unloaded are the numbers of items with and without their payload in memory, for
	// Stats; the session's lock is held where they change.
	loaded, unloaded atomic.Int64
	// held counts the bytes of the loaded ones of a session.
	held atomic.Pointer[atomic.Int64]

	// idle is set while a read of the stream has found nothing new; joined once its group is there.
	idle, joined atomic.Bool

	// unsure is set when something turns out not to be ours as we have it: it may be ours in
	// another way, as the answer to a script was lost.
	unsure atomic.Bool

	// own is held while the delivery counts of items are changed, or checked, at the server.
	own sync.Mutex

	// The session's lock guards what follows.
	items map[string]*item // by position
	acks  []*item          // handled, not yet acknowledged
	full  bool             // the log says that no more can be unloaded

	largest int64 // bytes that an entry may have that is read next, as far as can be told

	room  chan struct{} // there may be room for more
	toAck chan struct{} // there may be something to acknowledge

	// What follows is the reading goroutine's own.
	rest        resting
	mustRecover bool   // a read has failed: entries may be pending for us that we do not know of
	start       string // where the group begins if it has to be created again
	ready       bool   // the group is there
}

// NewConsumer returns a consumer for streams, in a group that is created where it does not exist;
// Run starts it. It reports everything that is wrong with its arguments at once.
//
// The client is the caller's: a single node, Sentinel, Cluster or Ring. Each stream keeps one of
// its connections busy for reading, so its PoolSize has to be larger than the number of streams by
// a few. Commands that must not be repeated blindly are exempt from the client's own retries,
// whatever their number.
func NewConsumer(client redis.UniversalClient, group string, streams []string, handler inbox.Handler, opts ...Option) (*Consumer, error) {
	c := &Consumer{settings: defaults(), client: client, group: group, sharded: isSharded(client)}
	c.consumer, c.name = group, uniqueName()
	c.dead = func(stream string) string { return DeadStream(stream, group) }
	for _, opt := range opts {
		opt(&c.settings)
	}
	var wrong []error
	if client == nil {
		wrong = append(wrong, errors.New("redisconsumer: consumer: there is no client"))
	}
	if handler == nil {
		wrong = append(wrong, errors.New("redisconsumer: consumer: there is no handler"))
	} else {
		wrong = append(wrong, inbox.Validate(handler))
	}
	if err := errors.Join(append(wrong, c.check(group, streams))...); err != nil {
		return nil, err
	}
	for _, name := range streams {
		c.streams = append(c.streams, &stream{name: name, dead: c.dead(name), source: c.source(name)})
	}
	if !c.noBackfill {
		c.addBackfills()
	}
	c.runner = inbox.Runner{Handler: handler, Retry: c.retry, Timeout: c.timeout, Observer: c.observer, Log: c.log}
	c.outages = outages{log: c.log, sharded: c.sharded}
	return c, nil
}

// Name is the consumer's name within its group; see [WithName].
func (c *Consumer) Name() string { return c.name }

// Run reads and handles messages until ctx ends, and returns nil after a graceful stop: nothing
// more is read; handlers under way have the time of [WithShutdownTimeout]; what they have done is
// acknowledged; everything else is released, so that other consumers get it at once, and no attempt
// is counted; and the consumer leaves its group. It returns with an error when the
// server refuses to do what is needed at the very start (a wrong password, a missing right, a key
// that is no stream), or when a handler does not come to an end after its context was cancelled.
//
// An outage of Redis does not end it: it tries again until it is over. A consumer runs once at a
// time, and not beside handlers that an earlier run has left behind.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.active.CompareAndSwap(false, true) {
		return errors.New("redisconsumer: run: the consumer runs already")
	}
	defer c.active.Store(false)
	if n := c.handlers.Load(); n > 0 {
		return fmt.Errorf("redisconsumer: run: %d handlers of the last run have not come to an end: wait for them, or make another consumer", n)
	}
	s := newSession(c)
	if err := c.open(ctx); err != nil {
		return err
	}
	var streams []string
	for _, st := range c.streams {
		if st.primary == nil {
			streams = append(streams, st.name)
		}
	}
	c.log.InfoContext(ctx, "consumer started", "streams", streams, "group", c.group, "consumer", c.consumer, "name", c.name, "workers", c.workers)
	defer c.log.InfoContext(context.WithoutCancel(ctx), "consumer stopped", "streams", streams, "group", c.group, "name", c.name)
	return s.run(ctx)
}

func isSharded(client redis.UniversalClient) bool {
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return true
	}
	return false
}
