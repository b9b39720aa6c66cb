package demo

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
)

// subscriber is Google's fake, but for how fast it hands out: by itself a stream gets one message in ten milliseconds.
type subscriber struct {
	*pstest.GServer
}

const (
	pullMost  = 100
	pullPause = 10 * time.Millisecond
)

// StreamingPull implements pubsubpb.SubscriberServer: it sends what the fake has, in the order that the fake keeps.
func (s subscriber) StreamingPull(stream pubsubpb.Subscriber_StreamingPullServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	pings := make(chan struct{})
	go func() {
		for {
			if _, err := stream.Recv(); err != nil { // nothing else comes this way: acknowledgements are calls of their own
				cancel(err)
				return
			}
			select {
			case pings <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return s.send(ctx, stream, first.GetSubscription(), pings)
}

func (s subscriber) send(ctx context.Context, stream pubsubpb.Subscriber_StreamingPullServer, subscription string, pings <-chan struct{}) error {
	pause := time.NewTicker(pullPause)
	defer pause.Stop()
	for {
		var messages []*pubsubpb.ReceivedMessage
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pings: // are answered
		case <-pause.C:
			pulled, err := s.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: pullMost, ReturnImmediately: true}) //nolint:staticcheck // of a fake
			if err != nil {
				return err
			}
			if messages = pulled.GetReceivedMessages(); len(messages) == 0 {
				continue
			}
		}
		if err := stream.Send(&pubsubpb.StreamingPullResponse{
			ReceivedMessages:       messages,
			SubscriptionProperties: &pubsubpb.StreamingPullResponse_SubscriptionProperties{MessageOrderingEnabled: true},
		}); err != nil {
			return err
		}
	}
}
