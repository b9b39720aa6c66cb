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
