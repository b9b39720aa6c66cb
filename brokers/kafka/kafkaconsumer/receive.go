package kafkaconsumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// What one poll takes out of the client's buffers is bounded in messages, and in the part of
// MaxOutstandingBytes: a partition is not read on only after the poll that fills it.
const (
	pollMessages = 500
	pollPart     = 8
)

// run is one Run of a consumer.
type run struct {
	*Consumer
	*consumer.Session

	kafka   *kgo.Client
	opened  chan struct{}      // closed when there is kafka: the group may be faster, and call back before
	kill    context.CancelFunc // ends the clients, whatever they wait for
	outage  consumer.Outage
	letters letters

	committing     sync.Mutex // one commit at a time
	commits        sync.WaitGroup
	stopCommitting context.CancelFunc

	mu         sync.Mutex
	partitions map[place]*partition
	known      map[string]*knownTopic // by name
}

func (c *Consumer) newRun(ctx context.Context) *run {
	r := &run{Consumer: c, partitions: map[place]*partition{}, known: map[string]*knownTopic{}, outage: consumer.Outage{Log: c.log}, opened: make(chan struct{})}
	for _, topic := range c.topics {
		r.known[topic] = &knownTopic{}
	}
	settings := consumer.SettingsOf(&c.config.ConsumerConfig, c.handler, c.log, &c.counts)
	settings.Recurs = true
	if c.config.DeadLetters != nil {
		settings.DeadLetter = r.deadLetter
	}
	r.Session = consumer.New(ctx, &settings)
	return r
}

// receive joins the group and consumes until ctx ends or it cannot continue.
func (r *run) receive(ctx context.Context) error {
	var life context.Context
	life, r.kill = context.WithCancel(context.WithoutCancel(ctx))
	client, err := kgo.NewClient(append(slices.Clip(r.client), kgo.WithContext(life),
		kgo.OnPartitionsAssigned(r.assigned), kgo.OnPartitionsRevoked(r.revoked), kgo.OnPartitionsLost(r.lost),
		kgo.AdjustFetchOffsetsFn(r.fetched))...)
	if err != nil {
		r.kill()
		return wrapped(err)
	}
	r.kafka = client
	close(r.opened)
	r.letters.options = append(slices.Clip(r.produce), kgo.WithContext(life))
	if err := r.inspect(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { r.watch(ctx) })
	goesOn, stop := context.WithCancel(life)
	r.stopCommitting = stop
	r.commits.Go(func() { r.keepCommitting(goesOn, life) })
	largest := 0
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, r.pollSize(largest))
		largest = 0
		fetches.EachRecord(func(record *kgo.Record) { largest = max(largest, sizeOf(record)) })
		fetches.EachRecord(r.take)
		client.AllowRebalance()
		if pause := r.failure(ctx, fetches); pause > 0 {
			consumer.Pause(ctx, pause) // once for all partitions, and none waits for it to move
		}
	}
	return nil
}

// pollSize is how many records to poll. Fetches are bounded as they are compressed, so how large their
// records are is known when they are in the client's buffers, where headers without bytes count
// nothing: hence the largest record of the last poll. Of a fetch that is awaited one is polled.
func (r *run) pollSize(largest int) int {
	n := int(r.kafka.BufferedFetchRecords())
	if n <= 1 {
		return 1
	}
	average := int(r.kafka.BufferedFetchBytes()) / n
	return max(1, min(n, pollMessages, r.config.MaxOutstandingBytes/pollPart/max(1, average, largest)))
}

// final has advice by code, for errors that waiting does not cure.
var final = map[int16]string{
	kerr.UnknownTopicOrPartition.Code:  "create the topic, or check its name",
	kerr.InvalidTopicException.Code:    "check the topic's name",
	kerr.TopicAuthorizationFailed.Code: "grant the user Read and Describe on the topic (kafka-acls)",
	kerr.GroupAuthorizationFailed.Code: "grant the user Read on the group (kafka-acls)",
	kerr.InvalidGroupID.Code:           "check the group's name",
	kerr.SaslAuthenticationFailed.Code: "check user, password and mechanism of SASL",
	kerr.UnsupportedSaslMechanism.Code: "check user, password and mechanism of SASL",
}

// inspect waits until the cluster answers, and finds out whether the topics are there and the group
// may be joined.
func (r *run) inspect(ctx context.Context) error {
	for {
		err := r.ask(ctx)
		var said *kerr.Error
		switch {
		case err == nil:
			r.outage.Over(ctx)
			return nil
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that is what it was told
		case errors.As(err, &said) && final[said.Code] != "":
			return fmt.Errorf("kafkaconsumer: consume: %w: %s", err, final[said.Code])
		}
		if !consumer.Pause(ctx, r.outage.Failed(ctx, err)) {
			return nil
		}
	}
}

// ask asks the cluster for the topics, and for the coordinator of the group.
func (r *run) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(r.config.pace.probe, time.Second))
	defer cancel()
	if _, err := r.look(ctx); err != nil {
		return err
	}
	coordinator := kmsg.NewPtrFindCoordinatorRequest()
	coordinator.CoordinatorKey, coordinator.CoordinatorKeys = r.group, []string{r.group}
	found, err := coordinator.RequestWith(ctx, r.kafka)
	if err != nil {
		return err
	}
	code := found.ErrorCode
	for i := range found.Coordinators {
		code = found.Coordinators[i].ErrorCode
	}
	if err := kerr.ErrorForCode(code); err != nil {
		return fmt.Errorf("group %q: %w", r.group, err)
	}
	return nil
}

// watch looks at the cluster now and then: the client does not say that it is out.
func (r *run) watch(ctx context.Context) {
	for consumer.Pause(ctx, r.config.pace.probe) {
		switch err := r.ask(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.outage.Failed(ctx, err)
		default:
			r.outage.Over(ctx)
		}
	}
}

// vanishing is the pause where a topic is gone, until the client forgets it.
const vanishing = 100 * time.Millisecond

// failure says how long to wait after what a fetch has failed with; 0 = that is nothing to wait for.
func (r *run) failure(ctx context.Context, fetches kgo.Fetches) (pause time.Duration) {
	var failed error
	fetches.EachError(func(topic string, partition int32, err error) {
		var (
			lost  *kgo.ErrDataLoss
			group *kgo.ErrGroupSession
		)
		switch {
		case ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed):
		case errors.As(err, &lost):
			r.log.ErrorContext(ctx, "messages lost by the broker", "topic", topic, "partition", partition, "from", lost.ResetTo, "to", lost.ConsumedTo)
		case errors.As(err, &group):
			failed = err
		case errors.Is(err, kerr.UnknownTopicID): // which the client only says after several attempts
			r.vanished(topic)
			pause = vanishing
		default:
			failed = fmt.Errorf("topic %q, partition %d: %w", topic, partition, err)
		}
	})
	if failed != nil {
		return r.outage.Failed(ctx, failed)
	}
	return pause
}

// take claims a record.
func (r *run) take(record *kgo.Record) {
	r.mu.Lock()
	p := r.partitions[place{record.Topic, record.Partition}]
	r.mu.Unlock()
	if p == nil {
		return // taken back since
	}
	record = detached(record)
	at := strconv.FormatInt(int64(record.Partition), 10) + "/" + strconv.FormatInt(record.Offset, 10)
	// A topic that is made anew, and one whose leader was elected uncleanly, use offsets again.
	id := fmt.Sprintf("%s/%s %d %d", record.Topic, at, record.LeaderEpoch, record.Timestamp.UnixMilli())
	o := &r.config
	attributes := attributesOf(record)
	message, broken := consumer.Read(&o.ConsumerConfig, &inbox.RawMessage{
		Payload: record.Value, Attributes: attributes, OrderingKey: cmp.Or(string(record.Key), attributes[inbox.FieldOrderingKey]),
		Source: o.Source(record.Topic), Position: at, Published: record.Timestamp,
	}, id)
	r.Take(&consumer.Entry{ID: id, Bytes: sizeOf(record), Message: message, Broken: broken}, p.add(record, message.ID))
}

// attributesOf are the headers. Those of CloudEvents begin with "ce_" on Kafka.
func attributesOf(record *kgo.Record) map[string]string {
	attributes := make(map[string]string, len(record.Headers))
	for _, header := range record.Headers {
		name := header.Key
		if short, cut := strings.CutPrefix(name, "ce_"); cut {
			name = "ce-" + short
		}
		attributes[name] = string(header.Value)
	}
	return attributes
}

// assigned notes the partitions that this member has got, at the beginning of a session of the group.
func (r *run) assigned(_ context.Context, _ *kgo.Client, all map[string][]int32) {
	r.advance(withoutThem, purged, func(name string) bool { return len(all[name]) == 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, partitions := range all {
		for _, n := range partitions {
			at := place{topic, n}
			r.partitions[at] = &partition{place: at, run: r, told: unknown}
		}
	}
}

// revoked gives partitions up for another member, which gets them when this returns: what is being
// handled is finished first, as far as the cluster waits for it.
func (r *run) revoked(ctx context.Context, client *kgo.Client, all map[string][]int32) {
	patience := client.OptValue(kgo.RebalanceTimeout).(time.Duration) / 2 //nolint:forcetypeassert // it is one
	ctx, cancel := context.WithTimeout(ctx, min(r.config.ShutdownTimeout, patience))
	defer cancel()
	r.givenBack(all)
	gone := r.remove(all)
	<-r.opened // what made the client returns, whatever becomes of the group
	r.Withdraw(ctx, gone.match)
	r.commit(context.WithoutCancel(ctx), slices.Collect(maps.Keys(gone)))
	gone.end()
}

// lost gives up partitions that others may have already.
func (r *run) lost(ctx context.Context, _ *kgo.Client, all map[string][]int32) {
	r.givenBack(all)
	r.drop(ctx, r.remove(all))
}

func (r *run) givenBack(all map[string][]int32) {
	r.advance(givingBack, withoutThem, func(name string) bool { return len(all[name]) > 0 })
}

// drop ends what is in progress with partitions, of which nothing more is committed.
func (r *run) drop(ctx context.Context, gone parting) {
	gone.end()
	over, cancel := context.WithCancel(ctx)
	cancel()
	r.Withdraw(over, gone.match)
}

// parting are partitions that go.
type parting map[*partition]bool

func (r *run) remove(all map[string][]int32) parting {
	return r.removeWhere(func(p *partition) bool { return slices.Contains(all[p.topic], p.partition) })
}

func (r *run) removeWhere(goes func(*partition) bool) parting {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := parting{}
	for at, p := range r.partitions {
		if goes(p) {
			gone[p] = true
			delete(r.partitions, at)
		}
	}
	return gone
}

func (g parting) match(e *consumer.Entry) bool {
	return g[e.First().(*claim).partition] //nolint:forcetypeassert // the only kind there is
}

func (g parting) end() {
	for p := range g {
		p.end()
	}
}

// leave commits what is done, and leaves the group.
func (r *run) leave() {
	if r.kafka == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	context.AfterFunc(ctx, r.kill) // the client would wait for a cluster that is silent for minutes
	r.kafka.AllowRebalance()
	if r.stopCommitting != nil {
		r.stopCommitting()
		r.commits.Wait()
	}
	r.commit(ctx, r.held())
	r.letters.close()
	r.kafka.CloseAllowingRebalance() // it leaves the group; to leave twice would leave a goroutine behind
}
