package kafkaconsumer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// A Consumer hands the messages of some topics to a handler: it is one member of a consumer group.
// Make one with [NewConsumer]. Its methods are safe for concurrent use.
type Consumer struct {
	group   string
	topics  []string
	config  Config
	client  []kgo.Opt // of the member of the group
	produce []kgo.Opt // of the client that writes dead letters
	handler inbox.Handler
	log     *slog.Logger
	counts  consumer.Counts
	running atomic.Pointer[run]
}

// NewConsumer returns a consumer of topics, which have to exist, on the cluster of the bootstrap
// servers, given as host:port, as a member of a group. Its error names all that is wrong; nothing is
// sent yet.
func NewConsumer(servers []string, group string, topics []string, handler inbox.Handler, config Config) (*Consumer, error) {
	servers, topics = slices.Clone(servers), slices.Clone(topics)
	if err := config.complete(servers, group, topics, handler); err != nil {
		return nil, err
	}
	c := &Consumer{group: group, topics: topics, config: config, handler: handler, log: config.Log.With("group", group, "consumer", config.Consumer)}
	start := kgo.NewOffset().AtStart()
	if config.NewOnly {
		start = kgo.NewOffset().AtEnd()
	}
	common := append(append([]kgo.Opt{
		kgo.ClientID("fanout"), kgo.DisableClientMetrics(),
		kgo.FetchMaxWait(fetchWait),         // a partition that is read on after a pause is in the next fetch: an idle one must end soon
		kgo.ProducerBatchMaxBytes(maxBatch), // how large dead letters may be is for their topic to say
		kgo.ProducerLinger(0),               // each is waited for
		// A dead letter has to be as small as its message was, whose producer may compress as well as
		// there is.
		kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.SnappyCompression(), kgo.NoCompression()),
	}, config.Client...), kgo.SeedBrokers(servers...))
	c.produce = common
	c.client = append(slices.Clip(common), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeStartOffset(start), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxPartitionBytes(int32(min(config.MaxOutstandingBytes, maxFetch))), //nolint:gosec // bounded by that
	)
	if err := kgo.ValidateOpts(c.client...); err != nil {
		return nil, wrapped(err)
	}
	return c, nil
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kafkaconsumer: Client: %w", err)
}

// fetchWait is Kafka's own default (fetch.max.wait.ms); that of the client is ten times as long.
const fetchWait = 500 * time.Millisecond

// maxFetch bounds what one fetch brings of a partition.
const maxFetch = 16 << 20

// maxBatch is the largest that the client can write.
const maxBatch = 100<<20 - 1<<10

// closing bounds the goodbye to a cluster.
const closing = 5 * time.Second

// Run receives and handles messages until ctx ends; then it stops gracefully and returns nil. It
// returns an error where the cluster refuses at the start what waiting does not cure: a topic does not
// exist, or the credentials are wrong. Outages are waited for. A consumer runs once at a time.
func (c *Consumer) Run(ctx context.Context) error {
	r := c.newRun(ctx)
	if !c.running.CompareAndSwap(nil, r) {
		return fmt.Errorf("kafkaconsumer: consume %q: this consumer runs already", c.topics)
	}
	defer c.running.Store(nil)
	receiving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	c.log.InfoContext(ctx, "consumer started", "workers", c.config.Workers)
	received := make(chan error, 1)
	go func() { received <- r.receive(receiving) }()
	var err error
	select {
	case <-ctx.Done():
		cancel()
		r.Stop(func() {}) // what is in progress may end while a partition moves
		err = <-received
	case err = <-received:
		r.Stop(func() {})
	}
	r.leave() //nolint:contextcheck // ctx has ended
	c.log.InfoContext(ctx, "consumer stopped")
	return err
}
