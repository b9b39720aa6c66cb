package kafka

import (
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitioner finds the partition of each record, and sends none to a partition that is out: a record
// with a key goes to the one of its key (murmur2, as Kafka's Java clients have it) or nowhere; one without
// goes to one that is well, which it keeps until its batch is full.
type partitioner struct{ client *client }

// ForTopic implements [kgo.Partitioner].
func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{client: p.client, topic: topic, keyed: kgo.StickyKeyPartitioner(nil).ForTopic(topic), current: nowhere}
}

// nowhere is no partition: the client gives such a record an error at once.
const nowhere = -1

type topicPartitioner struct {
	client  *client
	topic   string
	keyed   kgo.TopicPartitioner
	current int // of records without a key
}

// RequiresConsistency implements [kgo.TopicPartitioner]. It is true of records without a key as well:
// the choice is then between all partitions, and their numbers are what they seem.
func (*topicPartitioner) RequiresConsistency(*kgo.Record) bool { return true }

// OnNewBatch implements [kgo.TopicPartitionerOnNewBatch].
func (p *topicPartitioner) OnNewBatch() { p.current = nowhere }

// Partition implements [kgo.TopicPartitioner].
func (p *topicPartitioner) Partition(record *kgo.Record, there int) int {
	n := p.client.size(p.topic, there)
	number := p.current
	if record.Key != nil {
		number = p.keyed.Partition(record, n)
	} else if number < 0 || number >= n || p.out(number) != nil {
		number = p.choose(n)
		p.current = number
	}
	if number >= there {
		return p.refuse(record, number, errUnplaced)
	}
	return p.admit(record, number)
}

// size is the number of a topic's partitions for a round: the first that the client knew in it. The client may
// learn of another one meanwhile, and of two messages of a key in two partitions one may refuse what the
// other takes.
func (c *client) size(topic string, there int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, known := c.sizes[topic]
	if !known {
		n = there
		c.sizes[topic] = n
		c.servers.sized(topic, n)
	}
	return n
}

// choose returns a partition that is well, and any where none is.
func (p *topicPartitioner) choose(n int) int {
	first := rand.IntN(n)
	for _, led := range []bool{true, false} { // the client need not know the leaders yet
		for i := range n {
			number := (first + i) % n
			if led == (p.client.leader(p.partition(number)) != noServer) && p.out(number) == nil {
				return number
			}
		}
	}
	return first
}

func (p *topicPartitioner) admit(record *kgo.Record, number int) int {
	if why := p.out(number); why != nil {
		return p.refuse(record, number, why)
	}
	return number
}

func (p *topicPartitioner) refuse(record *kgo.Record, number int, why error) int {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	p.client.unsent[record] = &unsent{p.partition(number), why}
	return nowhere
}

func (p *topicPartitioner) partition(number int) partition {
	return partition{p.topic, int32(number)} //nolint:gosec // Kafka counts partitions in 32 bits
}

// out says why nothing is sent to a partition. A round does not change its mind: of records of a key
// the later one must not be there without the earlier one.
func (p *topicPartitioner) out(number int) error {
	of := p.partition(number)
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.shut[of]; why != nil {
		return why
	}
	why, judged := c.verdicts[of]
	if !judged && c.servers.some.Load() {
		why = c.servers.admit(of, c.leader(of))
		c.verdicts[of] = why
	}
	return why
}
