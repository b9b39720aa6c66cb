package kafkaconsumer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// Stats returns the present figures. How far the group is behind, its lag says: kafka-consumer-groups
// --describe.
func (c *Consumer) Stats() inbox.ConsumerStats {
	if r := c.running.Load(); r != nil {
		return c.counts.Stats(r.Session)
	}
	return c.counts.Stats(nil)
}

// PartitionStats is how far a consumer is with a partition that the group has given to it.
type PartitionStats struct {
	Topic     string
	Partition int32
	// Next is the offset at which the group goes on when the partition moves, or after a restart:
	// that of the first message that is not done. It is -1 where it is not known yet, as nothing
	// was delivered.
	Next int64
	// MessageID is that of the first message that is not done, and Age how long ago it was added to
	// the partition, by the clocks of its producer, or the server, and this process. They are empty
	// and 0 where all that was delivered is done. Where there is a decoder, the id is that of the header.
	MessageID string
	Age       time.Duration
	// Claimed are the messages that are not done, Bytes what these have.
	Claimed int
	Bytes   int64
	// Uncommitted are the messages that are done, and come again when the partition moves, or after
	// a restart, since the one at Next is not.
	Uncommitted int
	// Paused says that the partition is not read, since one of the three is at its maximum.
	Paused bool
}

// Partitions returns how far this consumer is with each partition that it has at the moment, by
// topic and number. Nothing is asked of the cluster.
func (c *Consumer) Partitions() []PartitionStats {
	r := c.running.Load()
	if r == nil {
		return nil
	}
	held := r.held()
	all := make([]PartitionStats, len(held))
	for i, p := range held {
		all[i] = p.stats()
	}
	slices.SortFunc(all, func(a, b PartitionStats) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}

func (p *partition) stats() PartitionStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PartitionStats{
		Topic: p.topic, Partition: p.partition, Next: unknown,
		Claimed: p.progress.open, Bytes: int64(p.bytes), Uncommitted: p.progress.uncommitted, Paused: p.paused,
	}
	if p.progress.begun {
		s.Next = p.progress.next.Offset
	}
	if head := p.progress.head(); head != nil {
		s.Next, s.MessageID, s.Age = head.record.Offset, head.id, head.age()
	}
	return s
}

// Lag is what [Consumer.Partitions] says, for each topic, as WatchLag of telemetry/otelinbox takes
// it: what this member was handed and cannot be committed yet, and the age of the oldest message
// that is not done. What waits at the cluster is not known here. It fails while the cluster is out,
// or the consumer does not run.
func (c *Consumer) Lag(context.Context) ([]inbox.Lag, error) {
	r := c.running.Load()
	if r == nil {
		return nil, fmt.Errorf("kafkaconsumer: lag of %q: the consumer does not run: call Run", c.topics)
	}
	if r.outage.Lasts() {
		return nil, fmt.Errorf("kafkaconsumer: lag of %q: the cluster does not answer: see the log for the cause", c.topics)
	}
	lags := make([]inbox.Lag, len(c.topics))
	for i, topic := range c.topics {
		lags[i] = inbox.Lag{Source: topic, Waiting: inbox.UnknownLag}
	}
	for _, p := range c.Partitions() {
		lag := &lags[slices.Index(c.topics, p.Topic)]
		lag.Pending += int64(p.Claimed + p.Uncommitted)
		lag.Oldest = max(lag.Oldest, p.Age)
	}
	return lags, nil
}
