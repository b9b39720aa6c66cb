package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	// roundMessages is how many messages go out together, and what a processor hands over at once.
	roundMessages = 500
	// roundBytes bounds them where max.message.bytes is larger.
	roundBytes = 8 << 20
	// batchOverhead is the head of a batch (61 bytes), rounded up.
	batchOverhead = 100
)

// Publish implements [brokers.Broker].
//
// Messages go out in rounds. What a round has for a partition fits into one batch, which Kafka takes or
// refuses as a whole: so of two messages of a key, which are in the same batch and in order, the later
// one is never there without the earlier one, however often the client repeats the batch. A round begins
// when all of the one before it is known, and has messages of a key for one topic only.
func (b *Broker) Publish(ctx context.Context, msgs []brokers.Message) []brokers.Result {
	if !b.gate.Enter() {
		return adapter.Closed(msgs)
	}
	defer b.gate.Leave()
	p := &publication{Broker: b, msgs: msgs, topics: map[string]destination{}}
	p.Begin(msgs, nil)
	p.work(ctx)
	return p.Results(ctx)
}

// publication is one call of Publish, and one goroutine's.
type publication struct {
	*Broker
	adapter.Call

	msgs    []brokers.Message
	client  *client
	seen    *client                // the last one: it knows the leaders, also when it is closed
	shut    map[partition]error    // partitions that were out in a round: nothing further is sent there
	topics  map[string]destination // by name
	doubted []item                 // what was refused by partitions that may refuse all
	hung    map[int32]int          // messages at which a server hung up, each sent alone, since it last confirmed one
	left    map[partition]int32    // partitions whose servers hang up at all that they get
	began   time.Time              // of the last round
	stale   bool                   // the client knows a topic that is no more, or has a number that is not its own
}

// A destination is what is known of it in a call.
type destination struct {
	topic   string
	created bool // it was, in this call
}

// item is a message that can be sent.
type item struct {
	index  int
	record *kgo.Record
	sent   bool  // the client has had the record, and changed it
	err    error // of its round
}

func (p *publication) work(ctx context.Context) {
	if len(p.msgs) == 0 {
		return
	}
	defer func() {
		if p.client != nil {
			p.release(p.client, !p.stale)
		}
	}()
	if ctx.Err() == nil {
		p.connect(ctx, 0)
	}
	for next := 0; next < len(p.msgs); {
		var round []item
		round, next = p.round(ctx, next)
		p.send(ctx, round)
	}
	p.judgeAgain()
	for of, server := range p.left {
		p.servers.fail(of, server, mostRepeats)
	}
}

// connect gets a client, and reports whether there is one. Where no server can be reached the call ends:
// the message at the index ran into the outage, the others are not sent.
func (p *publication) connect(ctx context.Context, i int) bool {
	if p.client != nil {
		return true
	}
	client, err := p.acquire(ctx)
	if err != nil {
		p.Stop(err)
		if !errors.Is(ctx.Err(), context.Canceled) {
			p.fail(i, err)
		}
		return false
	}
	p.client, p.seen = client, client
	return true
}

// round collects messages from next on that go out together. Those that cannot be sent get their
// results.
func (p *publication) round(ctx context.Context, next int) (round []item, after int) {
	limit := min(p.options.maxBytes, roundBytes) - batchOverhead
	bytes, topicOf := 0, map[string]string{}
	most := min(len(p.msgs)-next, roundMessages)
	round = make([]item, 0, most)
	room := newPage(most)
	for ; next < len(p.msgs) && len(round) < roundMessages; next++ {
		m := &p.msgs[next]
		if !p.Open(next) || !p.Admit(ctx, next) { // the first one of a call without a server has its result
			continue
		}
		d := p.destination(m.Destination)
		if topic, known := topicOf[m.OrderingKey]; known && topic != d.topic && m.OrderingKey != "" {
			break
		}
		record, size, omitted, err := p.encode(m, d.topic, room)
		if err != nil {
			p.fail(next, brokers.Permanent(fmt.Errorf("kafka: publish to %q: %w", d.topic, err)))
			continue
		}
		if bytes+size > limit && len(round) > 0 {
			break
		}
		p.Omit(next, omitted)
		topicOf[m.OrderingKey] = d.topic
		bytes += size
		round = append(round, item{index: next, record: record})
	}
	return round, next
}

// destination finds the topic of a destination, which is out where it has none.
func (p *publication) destination(name string) destination {
	d, known := p.topics[name]
	if !known {
		d.topic = p.options.topic(name)
		p.topics[name] = d
	}
	return d
}

// send sends items of one round, and gives them their results. Of items that Kafka refused together,
// each half is sent by itself, until the one that is refused is alone.
func (p *publication) send(ctx context.Context, round []item) {
	sendable := make([]item, 0, len(round))
	for _, it := range round {
		if !p.Admit(ctx, it.index) {
			continue
		}
		if err := checkTopic(p.destination(p.msgs[it.index].Destination).topic); err != nil {
			p.settle(ctx, it, err, false)
			continue
		}
		sendable = append(sendable, it)
	}
	if len(sendable) == 0 || !p.connect(ctx, sendable[0].index) {
		return
	}
	repeated := p.exchange(ctx, sendable)
	p.shutPartitions(sendable)
	var missing, refused, again []item
	p.recall(sendable)
	for _, it := range sendable {
		switch {
		case it.err == nil:
			p.confirm(it)
		case errors.Is(it.err, kerr.UnknownTopicOrPartition) && p.options.topics != nil && !p.destination(p.msgs[it.index].Destination).created:
			missing = append(missing, it)
		case errors.As(it.err, new(*misplaced)):
			again = append(again, it)
		case refusals[code(it.err)], errors.Is(it.err, errHungUp):
			p.refuse(it)
			refused = append(refused, it)
		default:
			p.settle(ctx, it, it.err, repeated)
		}
	}
	p.halve(ctx, refused)
	p.createAndSend(ctx, missing)
	p.send(ctx, again) // there is one server less
}

// confirm gives a message its result.
func (p *publication) confirm(it item) {
	r := it.record
	at := partition{r.Topic, r.Partition}
	p.servers.confirm(at, p.seen)
	p.refused.pass(at, p.msgs[it.index].ID, p.began)
	if len(p.hung) > 0 {
		delete(p.hung, p.seen.leader(at))
	}
	p.Confirm(it.index, r.Topic+":"+strconv.Itoa(int(r.Partition))+":"+strconv.FormatInt(r.Offset, 10))
}

// recall has messages go again that were confirmed although an earlier one of their key was not. There are none, as
// a round has a key in one partition.
func (p *publication) recall(items []item) {
	failed := map[string]error{} // by key
	for i := range items {
		it, key := &items[i], p.msgs[items[i].index].OrderingKey
		switch why := failed[key]; {
		case key == "":
		case it.err == nil && why != nil:
			it.err = fmt.Errorf("%w (%s)", errOvertook, why.Error())
		case it.err != nil && why == nil:
			failed[key] = it.err
		}
	}
}

// mostHung is at how many messages, each sent alone and none confirmed between, a server hangs up that does so at
// all of them.
const mostHung = 2

// halve deals with items that were refused with the others of their batches, or with all others for a server that
// hangs up at one of them.
func (p *publication) halve(ctx context.Context, refused []item) {
	batches := map[partition][]item{} // for a server without a topic
	var order []partition
	for _, it := range refused {
		of := partition{it.record.Topic, it.record.Partition}
		if errors.Is(it.err, errHungUp) {
			of = partition{number: p.seen.leader(of)}
		}
		if batches[of] == nil {
			order = append(order, of)
		}
		batches[of] = append(batches[of], it)
	}
	for _, of := range order {
		items := batches[of]
		if len(items) == 1 {
			if of.topic == "" {
				if p.hung == nil {
					p.hung = map[int32]int{}
				}
				p.hung[of.number]++
			}
			p.settle(ctx, items[0], items[0].err, false)
			continue
		}
		for _, half := range [][]item{items[:len(items)/2], items[len(items)/2:]} {
			if of.topic == "" && p.hung[of.number] >= mostHung {
				p.leave(ctx, of.number, half)
			} else {
				p.send(ctx, half)
			}
		}
	}
}

// leave leaves items for a server that hangs up at all that it gets.
func (p *publication) leave(ctx context.Context, server int32, items []item) {
	if p.left == nil {
		p.left = map[partition]int32{}
	}
	for _, it := range items {
		p.left[partition{it.record.Topic, it.record.Partition}] = server
		p.settle(ctx, it, fmt.Errorf("%w: %w", errUnreached, it.err), false)
	}
}

// createAndSend creates the topics that are missing, once in a call, and sends what is for them.
func (p *publication) createAndSend(ctx context.Context, missing []item) {
	for _, it := range missing {
		name := p.msgs[it.index].Destination
		d := p.destination(name)
		if d.created || p.Obstacle(ctx, it.index) != nil {
			continue
		}
		d.created = true
		p.topics[name] = d
		create := func(ctx context.Context, c *client) error { return p.create(ctx, c, d.topic) }
		if !p.connect(ctx, it.index) {
			return
		}
		if err := p.question(ctx, p.client, create); err != nil {
			p.drop() // a question that is not answered in time closes its client
			p.fail(it.index, ofTopic(classified(fmt.Sprintf("publish to %q", d.topic), err)))
		}
	}
	again := missing[:0:0]
	for _, it := range missing {
		if p.Open(it.index) {
			again = append(again, it)
		}
	}
	if len(again) > 0 {
		p.send(ctx, again)
	}
}

// exchange hands items to the client and waits for all answers. Each item then has its error. repeated
// is true where requests were written more than once, so that a refusal may follow a success.
func (p *publication) exchange(caller context.Context, round []item) (repeated bool) {
	ctx, cancel := context.WithTimeout(caller, p.options.timeout)
	defer cancel()
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	p.servers.tidy()
	p.refused.tidy()
	p.began = time.Now()
	client := p.client
	placed := client.begin(round, p.shut, abandon)
	var answers sync.WaitGroup
	answers.Add(len(round))
	patient := context.WithoutCancel(ctx) // that of a record would end it alone, and let one behind it go
	for i := range round {
		it := &round[i]
		client.Produce(patient, it.record, func(record *kgo.Record, err error) {
			if it.err = client.done(record); it.err == nil {
				it.err = err
			}
			answers.Done()
		})
	}
	stop := p.look(ctx, client, abandon)
	// The records of a topic that the client has yet to learn of get their partitions one by one, and a
	// flush would send the first of them while the others are on their way: in two batches, of which
	// the second may be taken though the first is refused.
	select {
	case <-placed:
	case <-ctx.Done():
	}
	var (
		why    error
		fate   map[partition]error
		failed = client.Flush(ctx) != nil
	)
	stop()
	if failed {
		// What is unconfirmed must not be written any more when this call has returned.
		why = context.Cause(ctx)
		if fate = p.fates(caller, client, why); fate == nil {
			p.Stop(why)
		}
		p.drop()
	}
	answers.Wait()
	if !failed || fate != nil {
		fate = p.unreached(client, round, fate) //nolint:contextcheck // its questions end by their own timeout
	}
	for i := range round {
		round[i].err = client.explain(&round[i], why, fate)
	}
	if !failed && client.turnedAway() {
		client.ForceMetadataRefresh() // a partition may have another leader by now
	}
	return failed || client.repeated()
}

// turnedAway reports whether records were not sent, since their partitions are out.
func (c *client) turnedAway() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.unsent) > 0
}

// shutPartitions notes the partitions that are out, in this call and for those to come, and the servers that
// confirm nothing.
func (p *publication) shutPartitions(items []item) {
	var slow map[int32][]partition // by leader
	for i := range items {
		err := items[i].err
		if err == nil || errors.As(err, new(*unsent)) {
			continue
		}
		of := partition{items[i].record.Topic, items[i].record.Partition}
		if _, scope := brokers.Classify(classified("", err)); scope != brokers.ScopePartition || p.shut[of] != nil {
			continue
		}
		if p.shut == nil {
			p.shut = map[partition]error{}
		}
		p.shut[of] = err
		if errors.As(err, new(*serverError)) {
			p.servers.learn(of.topic, p.seen.leader)
		}
		var waited time.Duration
		leader := p.seen.leader(of)
		if errors.Is(err, errSlow) {
			waited = min(p.seen.age(), p.options.timeout)
			if slow == nil {
				slow = map[int32][]partition{}
			}
			slow[leader] = append(slow[leader], of)
		}
		p.servers.fail(of, leader, waited)
	}
	if slow == nil {
		return
	}
	delete(slow, noServer)
	for i := range items {
		if r := items[i].record; items[i].err == nil {
			delete(slow, p.seen.leader(partition{r.Topic, r.Partition}))
		}
	}
	for leader, partitions := range slow {
		p.servers.slowed(leader, partitions, min(p.seen.age(), p.options.timeout))
	}
}

// drop closes the client.
func (p *publication) drop() {
	if p.client != nil {
		p.release(p.client, false)
		p.client = nil
	}
}

// settle gives an item that failed its result.
func (p *publication) settle(ctx context.Context, it item, err error, repeated bool) {
	if n := code(err); n != 0 {
		switch ruleOf(n, err).advice {
		case madeAnew:
			// A client keeps to the id that it has learned for a name. That it forgets a topic
			// (PurgeTopicsFromProducing) would have it count from 0 again under the same producer's number:
			// where the topic is there all the same, Kafka would take a new batch for an old one.
			p.stale = true
		case producer, seeLog:
			// It keeps to an error with which it was refused a number, too, and does not say of which
			// request one is.
			p.stale = true
		}
	}
	var away *unsent
	if errors.As(err, &away) {
		if why := p.shut[away.partition]; why != nil {
			p.Skip(it.index, why)
			return
		}
		repeated = false
	}
	if why := p.Held(it.index); why != nil && !repeated && !unsure(err) {
		p.Skip(it.index, why) // refused, as was the one before it
		return
	}
	d := p.destination(p.msgs[it.index].Destination)
	failure := p.judge(it, p.widened(d.topic, p.classified(it, err)))
	if errors.Is(ctx.Err(), context.Canceled) && p.client == nil {
		failure = brokers.Retryable(fmt.Errorf("kafka: publish to %q: %w", d.topic, err)) // the caller stopped waiting: the cluster need not be ill
	}
	p.fail(it.index, failure)
}

func (p *publication) classified(it item, err error) error {
	return classified(fmt.Sprintf("publish to %q", p.destination(p.msgs[it.index].Destination).topic), err)
}

// widened is an outage of a partition, and one of the destination where no other partition can be used.
func (p *publication) widened(topic string, failure error) error {
	if p.seen != nil && p.servers.allOut(topic, p.seen.leader) {
		return ofTopic(failure)
	}
	return failure
}

// fail records the failure of a message. Where the broker as a whole is out, the client is closed: the next call
// begins with a question, and hears at once what is wrong.
func (p *publication) fail(i int, err error) {
	p.Fail(i, err)
	if class, scope := brokers.Classify(err); class == brokers.ClassUnavailable && scope == brokers.ScopeBroker {
		p.drop()
		if brokers.Unanswered(err) {
			p.servers.forget()
		}
	}
}
