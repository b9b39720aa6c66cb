package kafkaconsumer

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

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

	mu     sync.Mutex
	claims []*claim    // in the order of their offsets; the first one is not done
	open   int         // claims that are not done
	bytes  int         // of these
	from   int64       // where it began
	last   *kgo.Record // all up to it are done; nil = the first one is not
	told   int64       // the offset that the group has
	paused bool
	lost   bool
}

// unknown is an offset that is not known.
const unknown = -1

// claim implements [session.Delivery].
type claim struct {
	*partition

	record *kgo.Record
	done   bool
}

// add claims a record. It pauses the partition where that fills it.
func (p *partition) add(record *kgo.Record) *claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &claim{partition: p, record: record}
	p.claims = append(p.claims, c)
	p.open++
	p.bytes += sizeOf(record)
	if p.run.config.NewOnly && p.from == unknown && p.last == nil && len(p.claims) == 1 {
		p.from = record.Offset
	}
	if o := &p.run.config; !p.lost && !p.paused && (p.open >= o.MaxOutstandingMessages || p.bytes >= o.MaxOutstandingBytes) {
		p.paused = true
		p.run.kafka.PauseFetchPartitions(p.list())
	}
	return c
}

// sizeOf is what a record takes: a foreign producer may put it all into the key and the headers.
func sizeOf(record *kgo.Record) int {
	n := len(record.Key) + len(record.Value)
	for i := range record.Headers {
		n += len(record.Headers[i].Key) + len(record.Headers[i].Value)
	}
	return n
}

func (p *partition) list() map[string][]int32 { return map[string][]int32{p.topic: {p.partition}} }

// begin notes where a partition begins, before anything of it was read.
func (p *partition) begin(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from = at
}

// next is where the group is to go on. changed says that the cluster does not know it yet.
func (p *partition) next() (at kgo.EpochOffset, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at = kgo.EpochOffset{Epoch: -1, Offset: p.from}
	if p.last != nil {
		at = kgo.EpochOffset{Epoch: p.last.LeaderEpoch, Offset: p.last.Offset + 1}
	}
	return at, !p.lost && at.Offset != unknown && at.Offset != p.told
}

// committed notes what the cluster knows.
func (p *partition) committed(offsets map[string]map[int32]kgo.EpochOffset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, is := offsets[p.topic][p.partition]; is {
		p.told = at.Offset
	}
}

// Ack implements [session.Delivery]: what is done up to here may be committed.
func (c *claim) Ack() {
	p := c.partition
	p.mu.Lock()
	defer p.mu.Unlock()
	c.done = true
	p.open--
	p.bytes -= sizeOf(c.record)
	if p.lost { // it is another's by now, and its offset, too
		return
	}
	for len(p.claims) > 0 && p.claims[0].done {
		p.last = p.claims[0].record
		p.claims[0] = nil
		p.claims = p.claims[1:]
	}
	if o := &p.run.config; p.paused && p.open <= o.MaxOutstandingMessages/2 && p.bytes <= o.MaxOutstandingBytes/2 {
		p.paused = false
		p.run.kafka.ResumeFetchPartitions(p.list())
	}
}

// Nack implements [session.Delivery]: what is not committed is delivered again to whom the partition
// is given next.
func (c *claim) Nack() {}

// end is the end of a partition that was taken back.
func (p *partition) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	if p.paused {
		p.run.kafka.ResumeFetchPartitions(p.list()) // the client would remember it when it comes back
	}
}
