package main

import (
	"context"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/protobuf/types/known/emptypb"
)

// subscriber is Google's fake, but for how fast it hands out: by itself a stream gets one message
// in ten milliseconds.
type subscriber struct {
	*pstest.GServer

	// sending keeps a nack, and a deadline that passes, out while messages are encoded: the fake writes a new acknowledgement id
	// into the message that it has handed out when it delivers it again.
	sending *sync.Mutex
}

const (
	pullMost  = 100
	pullPause = 10 * time.Millisecond
)

// StreamingPull implements pubsubpb.SubscriberServer: it sends what the fake has, in the order that
// the fake keeps.
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
		pull := false
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pings: // are answered
		case <-pause.C:
			pull = true
		}
		if err := s.sendOnce(ctx, stream, subscription, pull); err != nil {
			return err
		}
	}
}

// sendOnce sends what the fake has, or an empty answer where nothing is pulled.
func (s subscriber) sendOnce(ctx context.Context, stream pubsubpb.Subscriber_StreamingPullServer, subscription string, pull bool) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	response := pubsubpb.StreamingPullResponse{
		SubscriptionProperties: &pubsubpb.StreamingPullResponse_SubscriptionProperties{MessageOrderingEnabled: true},
	}
	if pull {
		pulled, err := s.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: pullMost, ReturnImmediately: true}) //nolint:staticcheck // of a fake
		if err != nil {
			return err
		}
		if response.ReceivedMessages = pulled.GetReceivedMessages(); len(response.GetReceivedMessages()) == 0 {
			return nil
		}
	}
	return stream.Send(&response)
}

// ModifyAckDeadline implements pubsubpb.SubscriberServer. A nack is a deadline of 0.
func (s subscriber) ModifyAckDeadline(ctx context.Context, request *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.GServer.ModifyAckDeadline(ctx, request)
}
