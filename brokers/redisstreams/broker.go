// Package redisstreams publishes to Redis Streams.
//
// A message becomes one entry: the field data holds the payload, and the flat fields of the message follow (id, type,
// correlation_id, content_type, traceparent ...), so that a consumer can filter without parsing:
//
//	XADD ordering::order * data {...} id 0197... type Ordering.OrderPlaced.v1 ...
//
// Messages go in chunks, each with one call of a Lua script that adds them in order and stops a key at its first failure. With
// plain pipelined XADDs the followers of a failed message would be in the stream before the failure is known.
//
// Redis 5 or later, Valkey, and anything else that speaks their protocol and runs scripts. An ACL user needs EVALSHA, EVAL,
// XADD and PING.
package redisstreams

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/internal/gate"
)

// MaxMessageBytes is the largest payload that Redis takes unless it is configured otherwise (proto-max-bulk-len): 512 MB.
const MaxMessageBytes = 512 << 20

// Broker publishes to Redis Streams. Make one with [New] or [Open]. All methods are safe for concurrent use.
type Broker struct {
	client  redis.UniversalClient
	options options
	owned   bool // Close closes the client
	// sharded clients reach several servers, each of which can be out while the others work.
	sharded bool
	short   sync.Map // clients of servers that lacked replicas the last time
	gate    gate.Gate
}

// New returns a broker that uses a client of the caller's: a single node, Sentinel, Cluster or Ring. Close leaves the client
// open.
//
// Recommended settings of the client: MaxRetries -1, because the processor retries, and knows how to wait; ContextTimeoutEnabled
// true, without which only the client's own timeouts end a call; and a read timeout, because a cancelled context (other than a
// deadline) does not interrupt a call that is under way. [Open] sets all of them.
func New(client redis.UniversalClient, opts ...Option) *Broker {
	b := &Broker{client: client, options: defaults()}
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		b.sharded = true
	}
	for _, opt := range opts {
		opt(&b.options)
	}
	return b
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: b.options.maxBytes, MaxBatch: preferredBatch}
}

// Ping implements [brokers.Broker]. With [WithReplicas] it also asks, on a single server, for the replicas.
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

// Close implements [brokers.Broker]. It closes the connections of a broker made by [Open]; those of [New] are the caller's.
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
