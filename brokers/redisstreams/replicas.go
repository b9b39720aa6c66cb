package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
)

// replicate sends commands and asks, over the same connection, how many replicas have what they
// wrote.
//
// Where they were too few, the messages are in the stream nonetheless, and a repeat adds them
// again: an outage of the replicas would fill it with copies, one for each attempt. So after a
// failure the question comes first, until the answer is good.
func (b *Broker) replicate(ctx context.Context, client pipeliner, calls []*call, commands []redis.Cmder) {
	if _, short := b.short.Load(client); short {
		if err := b.askReplicas(ctx, client); err != nil {
			for _, c := range calls {
				c.err = b.unreplicated(ctx, c.shard.stream, err)
			}
			return
		}
		b.short.Delete(client)
	}
	wait := b.newWait(ctx)
	for _, c := range calls {
		c.wait = wait
	}
	pipe(ctx, client, append(commands, wait))
	if b.tooFew(wait) != nil {
		b.short.Store(client, struct{}{})
	}
}

func (b *Broker) newWait(ctx context.Context) *redis.IntCmd {
	return redis.NewIntCmd(ctx, "wait", b.options.replicas, b.options.replicaTimeout.Milliseconds())
}

// askReplicas finds out, without writing, whether enough replicas have all that the server holds:
// after any command on the same connection, WAIT is about everything up to that moment.
func (b *Broker) askReplicas(ctx context.Context, client pipeliner) error {
	ping, wait := redis.NewStatusCmd(ctx, "ping"), b.newWait(ctx)
	pipe(ctx, client, []redis.Cmder{ping, wait})
	if err := ping.Err(); err != nil {
		return err
	}
	return b.tooFew(wait)
}

// tooFew says why what came before a WAIT is not known to be replicated, nil = it is.
func (b *Broker) tooFew(wait *redis.IntCmd) error {
	acknowledged, err := wait.Result()
	if err != nil {
		return err
	}
	if acknowledged < int64(b.options.replicas) {
		return &replicaError{acknowledged, b.options.replicas, b.options.replicaTimeout.String()}
	}
	return nil
}

// A replicaError says that too few replicas have acknowledged.
type replicaError struct {
	acknowledged int64
	wanted       int
	within       string
}

func (e *replicaError) Error() string {
	return fmt.Sprintf("too few replicas: %d of %d acknowledged within %s; see INFO replication", e.acknowledged, e.wanted, e.within)
}

// unreplicated classifies a failure to replicate, or to ask. No message is to blame for it.
func (b *Broker) unreplicated(ctx context.Context, stream string, err error) error {
	if short, ok := err.(*replicaError); ok { //nolint:errorlint // made above, never wrapped
		return brokers.Unavailable(b.wholeScope(), fmt.Errorf("redisstreams: publish to %q: %w", stream, short))
	}
	err = b.failed(ctx, stream, err)
	if class, _ := brokers.Classify(err); class == brokers.ClassRetryable && isServerError(err) {
		return brokers.Unavailable(b.wholeScope(), errors.Unwrap(err)) // whatever it has against WAIT
	}
	return err
}

// sendToShard sends a call to the server that holds its stream. The cluster client itself would
// send WAIT, which has no key, to any server at all.
func (b *Broker) sendToShard(ctx context.Context, c *call) {
	shard, err := b.shardOf(ctx, c.shard.stream)
	if err != nil {
		c.err = b.failed(ctx, c.shard.stream, err)
		return
	}
	b.sendTo(ctx, shard, []*call{c})
	if cluster, ok := b.client.(*redis.ClusterClient); ok && c.err == nil {
		b.follow(ctx, cluster, c)
	}
}

func (b *Broker) shardOf(ctx context.Context, stream string) (*redis.Client, error) {
	switch client := b.client.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, stream)
	case *redis.Ring:
		return client.GetShardClientForKey(stream)
	default:
		return nil, fmt.Errorf("a client of type %T has no shards", client)
	}
}

// follow sends what was redirected, because the stream's slot is moving or has moved, to where it
// is now. One step is enough nearly always; what is redirected again is unavailable for the moment.
func (b *Broker) follow(ctx context.Context, cluster *redis.ClusterClient, c *call) {
	var (
		all     = c.appendCommands(nil)
		moved   []redis.Cmder
		address string
		asking  bool
	)
	for _, command := range all {
		if to, ask, redirected := redirection(command.Err()); redirected {
			moved, address, asking = append(moved, command), to, ask
		}
	}
	if len(moved) == 0 {
		return
	}
	cluster.ReloadState(ctx)
	target := make(chan *redis.Client, 1)
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr == address {
			select {
			case target <- node:
			default:
			}
		}
		return nil
	})
	select {
	case node := <-target:
		before, mixed := c.wait, len(moved) < len(all)
		if asking {
			moved = withAsking(ctx, moved)
		}
		b.replicate(ctx, node, []*call{c}, moved)
		if mixed && b.tooFew(before) != nil { // for those that were not redirected
			c.wait = before
		}
	default: // a node that is not known yet: the redirection stands as the answer
	}
}

// withAsking puts ASKING in front of each command; it holds for one.
func withAsking(ctx context.Context, commands []redis.Cmder) []redis.Cmder {
	all := make([]redis.Cmder, 0, 2*len(commands))
	for _, command := range commands {
		all = append(all, redis.NewStatusCmd(ctx, "asking"), command)
	}
	return all
}

// redirection reads "MOVED 3999 127.0.0.1:6381" and "ASK 3999 127.0.0.1:6381".
func redirection(err error) (address string, ask, ok bool) {
	if err == nil {
		return "", false, false
	}
	word, rest, _ := strings.Cut(err.Error(), " ")
	if word != "MOVED" && word != "ASK" {
		return "", false, false
	}
	_, address, ok = strings.Cut(rest, " ")
	return address, word == "ASK", ok
}
