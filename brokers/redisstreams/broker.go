package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// MaxMessageBytes is the largest payload that Redis takes unless it is configured otherwise
// (proto-max-bulk-len): 512 MB.
const MaxMessageBytes = 512 << 20

// Broker publishes to Redis Streams. Make one with [New] or [Open]. All methods are safe for
// concurrent use.
type Broker struct {
	client  redis.UniversalClient
	options options
	owned   bool // Close closes the client
	// sharded clients reach several servers, each of which can be out while the others work.
	sharded bool
	// transactions says whether the server knows them.
	transactions transactions
	short        sync.Map // clients of servers that lacked replicas the last time
	gate         adapter.Gate
}

// New returns a broker that uses a client of the caller's: a single node, Sentinel, Cluster or
// Ring. Close leaves the client open.
//
// Recommended settings of the client: MaxRetries -1, because the processor retries, and knows how
// to wait (a client that does it as well costs duplicates, never order); ContextTimeoutEnabled
// true, without which only the client's own timeouts end a call; and a read timeout, because a
// cancelled context (other than a deadline) does not interrupt a call that is in progress. With
// [Settings.Replicas] the read timeout has to be longer than theirs. [Open] sets all of them. A Ring
// gives the streams of a server that it takes for dead to another one, where consumers do not look:
// set its HeartbeatFrequency to hours. Arguments of commands point into the messages of the call,
// so a hook of the client must not keep commands. Of the settings, those of servers and TLS do nothing.
func New(client redis.UniversalClient, settings Settings) *Broker {
	b := &Broker{client: client, options: settings.options()}
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		b.sharded = true
	}
	return b
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: b.options.maxBytes, MaxBatch: preferredBatch}
}

// Ping implements [brokers.Broker]. With [Settings.Replicas] it also asks, on a single server, for the
// replicas.
func (b *Broker) Ping(ctx context.Context) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	err := b.client.Ping(ctx).Err()
	if err == nil && b.options.replicas > 0 && !b.sharded {
		err = b.askReplicas(ctx, b.client)
	}
	if err != nil {
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("redisstreams: ping: %w", explained(err)))
	}
	return nil
}

// CheckDestination implements [brokers.DestinationChecker]. Streams are made by the first message;
// what can speak against one is a key of its name that holds something else.
func (b *Broker) CheckDestination(ctx context.Context, destination string) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	kind, err := b.client.Type(ctx, destination).Result()
	switch said := redis.Error(nil); {
	case err != nil && errors.As(err, &said) && strings.HasPrefix(err.Error(), "NOPERM"):
		return nil // TYPE is no command that a publisher needs
	case err != nil:
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("redisstreams: look at %q: %w", destination, explained(err)))
	case kind != "none" && kind != "stream":
		return b.refused(destination, "WRONGTYPE the key holds a "+kind)
	default:
		return nil
	}
}

// Close implements [brokers.Broker]. It closes the connections of a broker made by [Open]; those of
// [New] are the caller's.
func (b *Broker) Close(ctx context.Context) error {
	first, err := b.gate.Close(ctx)
	if !first {
		return nil
	}
	// Publishes that did not end in time lose their connection here and say so in their results.
	if b.owned {
		if closing := b.client.Close(); err == nil {
			err = closing
		}
	}
	if err != nil {
		return fmt.Errorf("redisstreams: close: %w", err)
	}
	return nil
}
