package pubsubconsumer

import (
	"context"
	"errors"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// What is abandoned goes to the topic of dead letters, as it was and with what is known of its end;
// then its key goes on.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.publish("a", 4)
	s.PublishOrdered(topic, []byte("nonsense"), map[string]string{"id": "x", "n": "9"}, "b")
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		switch it.n {
		case 1:
			return "", inbox.Permanent(errors.New("never"))
		case 2:
			return "", errors.New("not now")
		}
		return inbox.Handled, nil
	})
	p := start(t, newClient(t, s.Addr), l, Config{ConsumerConfig: inbox.ConsumerConfig{Consumer: "billing-v2", DeadLetters: inbox.Always("orders-dead")}})
	eventually(t, func() bool { return len(s.unacked()) == 0 }, "all are confirmed")
	require.NoError(t, p.stop())
	assert.Equal(t, []seen{{"a", 0}, {"a", 3}}, l.finished())
	stats := p.Stats()
	assert.Equal(t, []int64{3, 2, 4}, []int64{stats.Forwarded, stats.Handled, stats.Failed})
	letters := map[string]map[string]string{}
	for _, m := range s.letters() {
		assert.Equal(t, s.find(m.Attributes[inbox.FieldDeadLetterPosition]).Data, m.Data)
		assert.Equal(t, s.find(m.Attributes[inbox.FieldDeadLetterPosition]).OrderingKey, m.OrderingKey)
		assert.Equal(t, name, m.Attributes[inbox.FieldDeadLetterSource])
		assert.Equal(t, "billing-v2", m.Attributes[inbox.FieldDeadLetterConsumer])
		letters[m.Attributes["n"]] = m.Attributes
	}
	require.Len(t, letters, 3)
	assert.Equal(t, "never", letters["1"][inbox.FieldDeadLetterReason])
	assert.Equal(t, "1", letters["1"][inbox.FieldDeadLetterAttempts])
	assert.Equal(t, "not now", letters["2"][inbox.FieldDeadLetterReason])
	assert.Equal(t, "3", letters["2"][inbox.FieldDeadLetterAttempts])
	assert.Equal(t, "0", letters["9"][inbox.FieldDeadLetterAttempts])
	assert.Equal(t, "x", letters["9"]["id"])
}

// With a dead letter policy and no topic of ours, Pub/Sub is left to do it. (The fake sends the
// dead letter, and keeps the message.)
func TestDeadLetterPolicy(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(sub *pubsubpb.Subscription) {
		sub.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 5}
		sub.EnableMessageOrdering = false
	})
	_, err := s.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: name + "-dead", Topic: dead})
	require.NoError(t, err)
	s.publish("a", 2)
	s.publish("b", 2)
	l := newLedger(t, func(_ context.Context, _ *inbox.Message, it seen, _ int) (inbox.Outcome, error) {
		if it == (seen{"a", 1}) {
			return "", errors.New("never")
		}
		return inbox.Handled, nil
	})
	p := start(t, newClient(t, s.Addr), l)
	eventually(t, func() bool {
		found, err := s.GServer.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: name + "-dead", MaxMessages: 1})
		return err == nil && len(found.GetReceivedMessages()) == 1 && len(s.unacked()) == 1
	}, "the others are confirmed, it is among the dead")
	require.NoError(t, p.stop())
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Equal(t, 3, l.times[seen{"a", 1}], "it is not tried again when it is abandoned")
	// Five are what the policy counts. The fake keeps the message, and hands it out again for as
	// long as we look: each time it is given back.
	assert.GreaterOrEqual(t, p.Stats().Nacked, int64(5))
}
