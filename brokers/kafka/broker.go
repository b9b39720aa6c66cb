package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Broker publishes to one Kafka cluster. Make one with [Open]. All methods are safe for concurrent use.
type Broker struct {
	options  options
	seeds    []string
	settings []kgo.Opt // of each client; they hold the password
	gate     adapter.Gate
	servers  servers
	refused  refused

	mu     sync.Mutex
	idle   []*client
	active map[*client]bool
	closed bool // no client is kept any more
}

// acquire returns a client of which a server has answered at least once. An error is classified.
func (b *Broker) acquire(ctx context.Context) (*client, error) {
	c, err := b.take()
	if err != nil {
		return nil, brokers.Unavailable(brokers.ScopeBroker, err)
	}
	if c.greeted {
		return c, nil
	}
	if err := b.question(ctx, c, ping); err != nil {
		b.release(c, false)
		return nil, notConnected(err)
	}
	c.greeted = true
	return c, nil
}

func ping(ctx context.Context, c *client) error { return c.Ping(ctx) }

// question puts a question to the cluster, and ends with its context: the client itself finishes the
// first words with a server before it looks at one.
func (b *Broker) question(ctx context.Context, c *client, ask func(context.Context, *client) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.options.timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, c.close)
	err := ask(ctx, c)
	switch {
	case stop():
		return err
	case err == nil:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
}

func (b *Broker) take() (*client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var c *client
	for last := len(b.idle) - 1; last >= 0 && c == nil; last-- {
		c, b.idle = b.idle[last], b.idle[:last]
		if b.outdated(c) {
			b.servers.spawn(c.close)
			c = nil
		}
	}
	if c == nil {
		c = newClient(&b.servers)
		made, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(b.servers.seeds(b.seeds)...), kgo.Dialer(b.servers.connect),
			kgo.RecordPartitioner(partitioner{c}), kgo.WithHooks(c), kgo.WithLogger(&c.said),
		}, b.settings...)...)
		if err != nil {
			return nil, fmt.Errorf("kafka: connect: %w", err)
		}
		c.Client = made
	}
	if b.active == nil {
		b.active = map[*client]bool{}
	}
	b.active[c] = true
	return c, nil
}

// outdated reports whether a server went out since a client was made. It would still ask that server, if it is
// connected to it, and wait.
func (b *Broker) outdated(c *client) bool { return c.losses != b.servers.losses.Load() }

// release keeps a client for the next caller, or closes it.
func (b *Broker) release(c *client, keep bool) {
	b.mu.Lock()
	delete(b.active, c)
	keep = keep && !b.closed && !b.outdated(c)
	if keep {
		b.idle = append(b.idle, c)
	}
	b.mu.Unlock()
	if !keep {
		c.close()
	}
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: b.options.maxBytes - headerRoom, MaxBatch: roundMessages}
}

// Ping implements [brokers.Broker]. It asks one server of the cluster for its metadata.
func (b *Broker) Ping(ctx context.Context) error {
	return b.ask(ctx, "ping", ping)
}

// CheckDestination implements [brokers.DestinationChecker]. It asks whether the topic is there and may
// be described; Kafka cannot be asked whether it may be written to. With [Settings.CreateDestinations] a missing
// topic is no obstacle.
func (b *Broker) CheckDestination(ctx context.Context, destination string) error {
	topic := b.options.topic(destination)
	return b.ask(ctx, fmt.Sprintf("look at topic %q", topic), func(ctx context.Context, c *client) error {
		if err := checkTopic(topic); err != nil {
			return err
		}
		_, err := describe(ctx, c.Client, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) && b.options.topics != nil {
			return nil
		}
		return err
	})
}

// describe asks what is known of a topic, and of the servers. The error is that of the topic.
func describe(ctx context.Context, of kmsg.Requestor, topic string) (*kmsg.MetadataResponse, error) {
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(ctx, of)
	if err != nil {
		return nil, err
	}
	for i := range answer.Topics {
		err = errors.Join(err, kerr.ErrorForCode(answer.Topics[i].ErrorCode))
	}
	return answer, err
}

// ask puts a question to the cluster, on a client of its own.
func (b *Broker) ask(ctx context.Context, what string, question func(context.Context, *client) error) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	if err := ctx.Err(); err != nil {
		return classified(what, err)
	}
	c, err := b.acquire(ctx)
	if err != nil {
		return err
	}
	err = b.question(ctx, c, question)
	b.release(c, err == nil)
	if err != nil {
		return ofTopic(classified(what, err))
	}
	return nil
}

// create creates a topic, unless it exists.
func (b *Broker) create(ctx context.Context, c *client, topic string) error {
	partitions, replicas := int32(-1), int16(-1) // the cluster's defaults
	if n := b.options.topics.Partitions; n > 0 {
		partitions = int32(min(n, math.MaxInt32))
	}
	if n := b.options.topics.Replicas; n > 0 {
		replicas = int16(min(n, math.MaxInt16))
	}
	answer, err := kadm.NewClient(c.Client).CreateTopic(ctx, partitions, replicas, nil, topic)
	switch {
	case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		return known(ctx, c, topic)
	case answer.Err != nil:
		return fmt.Errorf("%w: create topic %q: %w", errNotCreated, topic, err)
	default: // no answer
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
}

// known waits until each server knows a topic that was created. The controller of a cluster confirms a
// topic before the servers have heard of it, and they refuse what is published to it until then.
func known(ctx context.Context, c *client, topic string) error {
	unknown := func(of kmsg.Requestor) (servers []kmsg.MetadataResponseBroker, is bool, err error) {
		answer, err := describe(ctx, of, topic)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.LeaderNotAvailable):
			return nil, true, nil
		case answer == nil:
			return nil, false, err
		default: // whatever else is wrong, publishing says
			return answer.Brokers, false, nil
		}
	}
	for pause := leastBackoff; ; pause = min(2*pause, mostBackoff) {
		servers, wait, err := unknown(c.Client)
		for i := 0; i < len(servers) && !wait; i++ {
			_, wait, _ = unknown(c.Broker(int(servers[i].NodeID))) // one that is down leads no partition for long
		}
		if err != nil || !wait {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the servers to know topic %q: %w", topic, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Close implements [brokers.Broker]. Publishes that are still in progress when ctx ends lose their
// clients, and say so in their results.
func (b *Broker) Close(ctx context.Context) error {
	first, err := b.gate.Close(ctx)
	if !first {
		return nil
	}
	b.mu.Lock()
	clients := slices.Clone(b.idle)
	b.idle, b.closed = nil, true
	for c := range b.active {
		clients = append(clients, c)
	}
	b.mu.Unlock()
	b.servers.cancel()
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(c.close)
	}
	closing.Wait()
	b.servers.close()
	if err != nil {
		return fmt.Errorf("kafka: close: %w", err)
	}
	return nil
}
