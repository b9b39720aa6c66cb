// Package gcppubsub publishes to Google Cloud Pub/Sub.
//
// A message becomes a Pub/Sub message: its data is the payload, its attributes are the flat fields (id, type, correlation_id,
// content_type, traceparent ...), its ordering key is the ordering key. Order holds within one region: pin it with
// [WithEndpoint] ("europe-west1-pubsub.googleapis.com:443"), and enable message ordering on the subscriptions.
//
// Topics are named after destinations ([TopicID] tells how) and have to exist, with a subscription: what is published to a topic
// without one is gone.
//
// # Why not pubsub.Publisher
//
// The requests are made with the client's Publish call, not with its Publisher, whose background queue does not fit a processor.
// The queue sends with a context of its own, so that messages leave after their publish call has ended, and with it the lease on
// their rows. A request that fails because of one message fails for all in it, and the queue cannot take it apart. And a key that
// failed stays paused until somebody resumes it, which cannot be timed right when several calls share the key. Here a key is a
// chain of requests, each sent when the one before it was confirmed; nothing is paused, and nothing is under way once Publish
// has returned.
package gcppubsub

import (
	"context"
	"fmt"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/internal/gate"
)

// Broker publishes to the topics of one project. Make one with [New] or [Open]. All methods are safe for concurrent use.
type Broker struct {
	client  *pubsub.Client
	options options
	owned   bool // Close closes the client
	gate    gate.Gate
}

// New returns a broker that uses a client of the caller's; Close leaves it open. Make the client with [ClientOptions], so that it
// finds back to a server that was away within about a second. [WithClientOptions] and [WithEndpoint] have no effect here.
func New(client *pubsub.Client, opts ...Option) *Broker {
	b := &Broker{client: client, options: defaults()}
	for _, opt := range opts {
		opt(&b.options)
	}
	return b
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: MaxMessageBytes, MaxBatch: pubsub.MaxPublishRequestCount}
}

// Ping implements [brokers.Broker]: it asks for a topic that need not exist. That it is unknown, or none of our business, is an
// answer as good as any; a publisher's role may not look at topics.
func (b *Broker) Ping(ctx context.Context) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	ctx, cancel := context.WithTimeout(ctx, b.options.timeout)
	defer cancel()
	err := patiently(ctx, func() error {
		_, err := b.client.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: b.topicName("fanout-ping")}, withoutRetry)
		return err
	})
	switch status.Code(err) {
	case codes.OK, codes.NotFound, codes.PermissionDenied:
		return nil
	default:
		return brokers.Unavailable(brokers.ScopeBroker, fmt.Errorf("gcppubsub: ping: %w", err))
	}
}

// Close implements [brokers.Broker]. It closes the connections of a broker made by [Open]; those of [New] are the caller's.
func (b *Broker) Close(ctx context.Context) error {
	first, err := b.gate.Close(ctx)
	if !first {
		return nil
	}
	// Publishes that did not end in time lose their connection here and say so in their results.
	if b.owned {
		if closing := b.client.Close(); err == nil {
			err = closing
		}
	}
	if err != nil {
		return fmt.Errorf("gcppubsub: close: %w", err)
	}
	return nil
}
