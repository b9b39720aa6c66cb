package kafkaconsumer

import (
	"bytes"
	"container/list"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// unknown is an offset that is not known.
const unknown = -1

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// A partition is one that the group has given to this consumer, until it is taken back. Its messages
// are done in any order, and committed in that of their offsets: Kafka knows one offset for each
// partition, below which all is done.
type partition struct {
	place

	run *run

	mu       sync.Mutex
	progress progress
	bytes    int       // of what is claimed
	told     int64     // the offset that the group has
	crowded  bool      // too much is claimed
	pinned   time.Time // since when too much is uncommitted; zero = it is not
	paused   bool      // the client does not read it
	lost     bool
}

// claim implements [consumer.Delivery].
type claim struct {
	*partition

	record *kgo.Record
	id     string // of the message
	since  time.Time
	mark   *list.Element // of the progress
}

// add claims a record, of the message of that id. It pauses the partition where that fills it.
func (p *partition) add(record *kgo.Record, id string) *claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &claim{partition: p, record: record, id: id, since: time.Now()}
	if p.run.config.NewOnly && !p.progress.begun && p.progress.head() == nil {
		p.progress.begin(record.Offset)
	}
	c.mark = p.progress.add(c)
	p.bytes += sizeOf(record)
	if !p.lost {
		p.regulate()
	}
	return c
}

// detached is a record in memory of its own. Those of the client are parts of their batch: one that
// is claimed for long would keep all of it.
func detached(record *kgo.Record) *kgo.Record {
	own := &kgo.Record{
		Topic: record.Topic, Partition: record.Partition, Offset: record.Offset, LeaderEpoch: record.LeaderEpoch, Timestamp: record.Timestamp,
		Key: bytes.Clone(record.Key), Value: bytes.Clone(record.Value),
	}
	own.Headers = make([]kgo.RecordHeader, 0, len(record.Headers))
	for _, header := range record.Headers {
		own.Headers = append(own.Headers, kgo.RecordHeader{Key: header.Key, Value: bytes.Clone(header.Value)})
	}
	return own
}

// sizeOf is what a record takes: a foreign producer may put it all into the key and the headers.
func sizeOf(record *kgo.Record) int {
	n := len(record.Key) + len(record.Value) + consumer.HeaderBytes*len(record.Headers)
	for i := range record.Headers {
		n += len(record.Headers[i].Key) + len(record.Headers[i].Value)
	}
	return n
}

func (p *partition) list() map[string][]int32 { return map[string][]int32{p.topic: {p.partition}} }

// regulate pauses a partition while too much of it is claimed, or uncommitted; each until it is
// half as much. With the lock held.
func (p *partition) regulate() {
	o, open := &p.run.config, p.progress.open
	p.crowded = open >= o.MaxOutstandingMessages || p.bytes >= o.MaxOutstandingBytes ||
		p.crowded && (open > o.MaxOutstandingMessages/2 || p.bytes > o.MaxOutstandingBytes/2)
	p.pin()
	switch full := p.crowded || !p.pinned.IsZero(); {
	case full && !p.paused:
		p.paused = true
		p.run.kafka.PauseFetchPartitions(p.list())
	case p.paused && !full:
		p.paused = false
		p.run.kafka.ResumeFetchPartitions(p.list())
	}
}

// pin notes, and logs, when too much is uncommitted, and when it is not any more.
func (p *partition) pin() {
	log, ctx, most, uncommitted := p.run.log, p.run.Context(), p.run.config.MaxUncommittedMessages, p.progress.uncommitted
	switch pinned := !p.pinned.IsZero(); {
	case !pinned && uncommitted >= most:
		p.pinned = time.Now()
		head := p.progress.head()
		log.WarnContext(ctx, "partition not read: too many messages uncommitted", "topic", p.topic, "partition", p.partition,
			"offset", head.record.Offset, "message_id", head.id, "age", head.age(), "uncommitted", uncommitted)
	case pinned && uncommitted <= most/2:
		log.InfoContext(ctx, "partition read again", "topic", p.topic, "partition", p.partition, "after", time.Since(p.pinned))
		p.pinned = time.Time{}
	}
}

// begin notes where a partition begins, before anything of it was read.
func (p *partition) begin(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress.begin(at)
}

// next is where the group is to go on. changed says that the cluster does not know it yet.
func (p *partition) next() (at kgo.EpochOffset, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at = p.progress.next
	return at, !p.lost && p.progress.begun && at.Offset != p.told
}

// committed notes what the cluster knows.
func (p *partition) committed(offsets map[string]map[int32]kgo.EpochOffset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, is := offsets[p.topic][p.partition]; is {
		p.told = at.Offset
	}
}

// Ack implements [consumer.Delivery]: what is done up to here may be committed.
func (c *claim) Ack() {
	p := c.partition
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= sizeOf(c.record)
	if p.lost { // it is another's by now, and its offset, too
		return
	}
	p.progress.done(c.mark)
	p.regulate()
}

// age is how long ago the message was added to its partition, by the clock of its producer, or the
// server. Where that is ahead, or there is no time, it is at least as old as its claim.
func (c *claim) age() time.Duration {
	age := time.Since(c.since)
	if at := c.record.Timestamp; at.UnixMilli() > 0 { // -1 = none
		age = max(age, time.Since(at))
	}
	return age
}

// Nack implements [consumer.Delivery]: what is not committed is delivered again to the partition's next
// owner.
func (c *claim) Nack() {}

// end is the end of a partition that was taken back.
func (p *partition) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost, p.progress = true, progress{} // nothing of it is committed any more
	if p.paused {
		p.run.kafka.ResumeFetchPartitions(p.list()) // the client would remember it when it comes back
	}
}
