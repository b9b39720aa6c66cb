package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gorm-fanout/fanout/inbox/internal/session"
)

// An anewError says that a topic was deleted and made anew. The client keeps to the one that is gone.
type anewError struct{ topic string }

func (e *anewError) Error() string { return fmt.Sprintf("topic %q was deleted and made anew", e.topic) }

// look asks for the topics, and says which of them are those that the run began with: a topic has an id
// of the cluster's own, from Kafka 2.8 on.
func (r *run) look(ctx context.Context) (same map[string]bool, err error) {
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
	same = map[string]bool{}
	var anew *anewError
	for i := range answer.Topics { // in an order of the cluster's own
		topic := &answer.Topics[i]
		if topic.Topic == nil {
			continue
		}
		name := *topic.Topic
		if missing := kerr.ErrorForCode(topic.ErrorCode); missing != nil {
			err = fmt.Errorf("topic %q: %w", name, missing)
			continue
		}
		id, known := r.ids[name]
		if !known {
			id, r.ids[name] = topic.TopicID, topic.TopicID
		}
		if same[name] = id == topic.TopicID; !same[name] {
			anew = &anewError{name}
		}
	}
	if anew != nil {
		err = anew
	}
	return same, err
}

// begunAnew ends the run where an error says that a topic is another one by now.
func (r *run) begunAnew(err error) bool {
	var anew *anewError
	if !errors.As(err, &anew) {
		return false
	}
	r.end(anew)
	return true
}

// keepCommitting commits now and then what is done, until ctx ends; a commit that has begun is not cut
// short, for nobody would know what came of it.
func (r *run) keepCommitting(ctx, life context.Context) {
	for session.Pause(ctx, r.options.pace.commit) {
		commit, cancel := context.WithTimeout(life, closing)
		r.commit(commit, r.held())
		cancel()
	}
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
// nobody has seen.
func (r *run) commit(ctx context.Context, partitions []*partition) {
	r.committing.Lock()
	defer r.committing.Unlock()
	offsets := done(partitions, nil)
	if len(offsets) == 0 {
		return
	}
	same, err := r.look(ctx)
	r.begunAnew(err)
	if same == nil && ctx.Err() == nil {
		r.outage.Failed(ctx, fmt.Errorf("commit: %w", err))
	}
	if offsets = done(partitions, same); len(offsets) == 0 {
		return
	}
	r.kafka.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		if err = errors.Join(err, refusedIn(answer)); err == nil {
			for _, p := range partitions {
				p.committed(offsets)
			}
		} else if !errors.Is(err, context.Canceled) {
			r.commitFailed(ctx, err)
		}
	})
}

// done are the offsets of partitions that are to be committed, in the topics of which same says so;
// nil = all.
func done(partitions []*partition, same map[string]bool) map[string]map[int32]kgo.EpochOffset {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, p := range partitions {
		next, changed := p.next()
		if !changed || same != nil && !same[p.topic] {
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
func refusedIn(answer *kmsg.OffsetCommitResponse) (err error) {
	if answer == nil {
		return nil
	}
	for i := range answer.Topics {
		for j := range answer.Topics[i].Partitions {
			err = errors.Join(err, kerr.ErrorForCode(answer.Topics[i].Partitions[j].ErrorCode))
		}
	}
	return err
}

func (r *run) commitFailed(ctx context.Context, err error) {
	if said := (*kerr.Error)(nil); errors.As(err, &said) {
		r.AckFailed("commit", "", err)
	} else {
		r.outage.Failed(ctx, fmt.Errorf("commit: %w", err))
	}
}
