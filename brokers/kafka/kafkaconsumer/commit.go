package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// A knownTopic is what is known of a topic that is consumed. A topic that is deleted and made anew has
// another id, and the client keeps to the one that it began with.
type knownTopic struct {
	id    [16]byte  // of the cluster's own, from Kafka 2.8 on; zero = unknown
	gone  bool      // what the client consumes is there no more
	anew  bool      // it was made anew since the consumer began
	purge purge     // how far that is with one that is gone
	since time.Time // it has been purged
}

// A purge has the client forget a topic. It must not hear of the topic again before it has begun a
// session of the group without: to partitions that it gets back in the next session it would give no
// thought, and not read them.
type purge int

const (
	notPurged   purge = iota
	givingBack        // its partitions
	withoutThem       // as soon as the next session begins
	purged
)

// look asks for the topics, and says which of them are there.
func (r *run) look(ctx context.Context) (there map[string]bool, err error) {
	request := kmsg.NewPtrMetadataRequest()
	for _, topic := range r.topics {
		wanted := kmsg.NewMetadataRequestTopic()
		wanted.Topic = kmsg.StringPtr(topic)
		request.Topics = append(request.Topics, wanted)
	}
	answer, err := request.RequestWith(ctx, r.kafka)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	there = map[string]bool{}
	for i := range answer.Topics { // in an order of the cluster's own
		said := &answer.Topics[i]
		if said.Topic == nil || r.known[*said.Topic] == nil {
			continue
		}
		if missing := kerr.ErrorForCode(said.ErrorCode); missing != nil {
			err = fmt.Errorf("topic %q: %w", *said.Topic, missing)
			continue
		}
		there[*said.Topic] = true
		switch topic := r.known[*said.Topic]; {
		case said.TopicID == [16]byte{}: // an old server
		case topic.id == [16]byte{}:
			topic.id = said.TopicID
		case topic.id != said.TopicID:
			topic.gone = true
		}
	}
	return there, err
}

// keepCommitting commits now and then what is done, until ctx ends; a commit that has begun is not cut
// short, for its result would be unknown.
func (r *run) keepCommitting(ctx, life context.Context) {
	for consumer.Pause(ctx, r.config.pace.commit) {
		r.commit(life, r.held())
		if len(r.gone()) > 0 {
			r.renew(life)
		}
	}
}

// vanished notes that what the client consumes is there no more.
func (r *run) vanished(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if topic := r.known[name]; topic != nil {
		topic.gone = true
	}
}

// gone are the topics that are not what the client consumes.
func (r *run) gone() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := map[string]bool{}
	for name, topic := range r.known {
		if topic.gone {
			gone[name] = true
		}
	}
	return gone
}

// patience bounds a purge, of which nothing is heard where the group has taken the partitions back at the
// same time.
const patience = time.Minute

// renew has the client forget topics that are gone, and consume those of the same name as soon as they
// are there.
func (r *run) renew(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, closing)
	defer cancel()
	there, _ := r.look(bounded) // an outage is seen elsewhere
	for name := range r.gone() {
		switch r.stage(name) {
		case notPurged:
			this := func(topic string) bool { return topic == name }
			r.advance(notPurged, givingBack, this)
			mine := r.removeWhere(func(p *partition) bool { return this(p.topic) })
			if len(mine) == 0 {
				r.advance(givingBack, purged, this)
			}
			r.drop(ctx, mine)
			r.kafka.PurgeTopicsFromConsuming(name)
		case givingBack, withoutThem: // the group has yet to begin a session
		case purged:
			if !there[name] {
				continue
			}
			r.log.WarnContext(ctx, "topic made anew", "topic", name)
			r.mu.Lock()
			*r.known[name] = knownTopic{anew: true}
			r.mu.Unlock()
			r.kafka.AddConsumeTopics(name)
		}
	}
}

// stage is how far the purge of a topic is.
func (r *run) stage(name string) purge {
	r.mu.Lock()
	defer r.mu.Unlock()
	topic := r.known[name]
	if topic.purge != notPurged && time.Since(topic.since) > patience {
		return purged
	}
	return topic.purge
}

// advance moves purges on.
func (r *run) advance(from, to purge, concerned func(name string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, topic := range r.known {
		if topic.purge == from && concerned(name) {
			topic.purge = to
			if from == notPurged {
				topic.since = time.Now()
			}
		}
	}
}

// fetched adjusts where partitions are read from of which the group has no offset. Those of a topic that
// was made anew are read from their beginning, also with NewOnly. With it the others begin at their
// end, which is committed: who gets them next goes on there, and not at what is the end by then.
func (r *run) fetched(ctx context.Context, all map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	if !r.config.NewOnly {
		return all, nil
	}
	select {
	case <-r.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ends := sync.OnceValue(func() kadm.ListedOffsets {
		bounded, cancel := context.WithTimeout(ctx, closing) // nothing is read meanwhile
		defer cancel()
		ends, _ := kadm.NewClient(r.kafka).ListCommittedOffsets(bounded, r.topics...)
		return ends
	})
	for name, partitions := range all {
		for n, offset := range partitions {
			if offset.EpochOffset().Offset >= 0 {
				continue
			}
			r.mu.Lock()
			anew, p := r.known[name].anew, r.partitions[place{name, n}]
			r.mu.Unlock()
			if p == nil {
				continue
			}
			if anew {
				p.begin(0)
				partitions[n] = kgo.NewOffset().At(0)
			} else if end, is := ends().Lookup(name, n); is && end.Err == nil {
				p.begin(end.Offset)
				partitions[n] = kgo.NewOffset().At(end.Offset).WithEpoch(-1)
			} // else it begins at its end, too, but it is not known yet where that is
		}
	}
	return all, ctx.Err() // the next session asks again
}

// held are the partitions that this member has.
func (r *run) held() []*partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*partition, 0, len(r.partitions))
	for _, p := range r.partitions {
		all = append(all, p)
	}
	return all
}

// commit tells the cluster up to where all is done. It keeps offsets by the names of topics, so each
// must still be the topic that they are of: in another one there would be messages below them that
// no one has seen.
func (r *run) commit(ctx context.Context, partitions []*partition) {
	r.committing.Lock()
	defer r.committing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, closing)
	defer cancel()
	if len(done(partitions, func(string) bool { return true })) == 0 {
		return
	}
	there, err := r.look(ctx)
	if there == nil {
		r.commitFailed(ctx, err)
		return
	}
	gone := r.gone()
	offsets := done(partitions, func(topic string) bool { return there[topic] && !gone[topic] })
	if len(offsets) == 0 {
		return
	}
	r.kafka.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		if err = errors.Join(err, r.refusedIn(answer)); err != nil {
			r.commitFailed(ctx, err)
			return
		}
		for _, p := range partitions {
			p.committed(offsets)
		}
	})
}

// done are the offsets of partitions that are to be committed, in the topics of which of says so.
func done(partitions []*partition, of func(topic string) bool) map[string]map[int32]kgo.EpochOffset {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, p := range partitions {
		next, changed := p.next()
		if !changed || !of(p.topic) {
			continue
		}
		if offsets[p.topic] == nil {
			offsets[p.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.topic][p.partition] = next
	}
	return offsets
}

// refusedIn is what an answer says of the partitions that it refuses.
func (r *run) refusedIn(answer *kmsg.OffsetCommitResponse) (err error) {
	if answer == nil {
		return nil
	}
	for i := range answer.Topics {
		for j := range answer.Topics[i].Partitions {
			refusal := kerr.ErrorForCode(answer.Topics[i].Partitions[j].ErrorCode)
			if errors.Is(refusal, kerr.UnknownTopicID) {
				r.vanished(answer.Topics[i].Topic)
			}
			err = errors.Join(err, refusal)
		}
	}
	return err
}

func (r *run) commitFailed(ctx context.Context, err error) {
	switch said := (*kerr.Error)(nil); {
	case errors.As(err, &said):
		r.AckFailed("commit", "", err)
	case ctx.Err() == nil: // else the next one follows, and an outage is seen elsewhere
		r.outage.Failed(ctx, fmt.Errorf("commit: %w", err))
	}
}
