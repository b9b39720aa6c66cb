package gcppubsub

import (
	"context"
	"fmt"
	"slices"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// Broker publishes to the topics of one project. Make one with [New] or [Open]. All methods are
// safe for concurrent use.
type Broker struct {
	client  *pubsub.Client
	options options
	owned   bool // Close closes the client
	gate    adapter.Gate
}

// New returns a broker that uses a client of the caller's; Close leaves it open. Make the client
// with [ClientOptions], so that it finds back to a server that was away within about a second.
// Project, Endpoint and Client of the settings have no effect here.
func New(client *pubsub.Client, settings Settings) *Broker {
	return &Broker{client: client, options: settings.options()}
}

// Capabilities implements [brokers.Broker].
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{Ordering: true, MaxMessageBytes: MaxMessageBytes, MaxBatch: pubsub.MaxPublishRequestCount}
}

// Ping implements [brokers.Broker]: it asks for a topic that need not exist (GetTopic), which
// proves the network, TLS, the credentials and the project. That the topic is unknown, or none of
// our business, is an answer as good as any, so that no permission is needed. Whether each topic
// exists and may be published to is found out by publishing: a publisher's role may not look at
// topics.
func (b *Broker) Ping(ctx context.Context) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	call, cancel := context.WithTimeout(ctx, b.options.timeout)
	defer cancel()
	topic := topicName(b.client.Project(), "fanout-ping")
	err := patiently(call, func() error {
		_, err := b.client.TopicAdminClient.GetTopic(call, &pubsubpb.GetTopicRequest{Topic: topic}, withoutRetry)
		return err
	})
	if err == nil {
		return nil
	}
	v := b.judge(ctx, call, topic, err)
	if code := status.Code(err); v.scope == brokers.ScopeDestination && (code == codes.NotFound || code == codes.PermissionDenied) {
		return nil
	}
	return brokers.Unavailable(brokers.ScopeBroker, v.advise(fmt.Errorf("gcppubsub: ping project %q: %w", b.client.Project(), err)))
}

// permissionToPublish is what a publisher needs on a topic.
const permissionToPublish = "pubsub.topics.publish"

// CheckDestination implements [brokers.DestinationChecker]. It looks at the destination's topic
// (GetTopic), for which the role of a publisher is not enough, and asks for its own permissions
// there (TestIamPermissions), for which none is needed. With [Settings.CreateDestinations] a missing topic is
// no obstacle. Emulators know no permissions.
func (b *Broker) CheckDestination(ctx context.Context, destination string) error {
	if !b.gate.Enter() {
		return brokers.ErrClosed
	}
	defer b.gate.Leave()
	topic, err := b.topicFor(destination)
	if err != nil {
		return brokers.Unavailable(brokers.ScopeDestination, fmt.Errorf("gcppubsub: destination %q: %w", destination, err))
	}
	call, cancel := context.WithTimeout(ctx, b.options.timeout)
	defer cancel()
	err = patiently(call, func() error {
		_, err := b.client.TopicAdminClient.GetTopic(call, &pubsubpb.GetTopicRequest{Topic: topic}, withoutRetry)
		return err
	})
	switch code := status.Code(err); {
	case code == codes.NotFound && b.options.createTopics:
		return nil
	case err != nil && code != codes.PermissionDenied:
		return b.classified(ctx, call, topic, err)
	}
	answer, asked := b.client.TopicAdminClient.TestIamPermissions(call,
		&iampb.TestIamPermissionsRequest{Resource: topic, Permissions: []string{permissionToPublish}}, withoutRetry)
	if asked != nil || slices.Contains(answer.GetPermissions(), permissionToPublish) {
		return nil // or it cannot be told, as by an emulator
	}
	why := "the topic is there, but may not be published to"
	if err != nil {
		why = "the topic is missing, or may be neither looked at nor published to"
	}
	return b.classified(ctx, call, topic, status.Error(codes.PermissionDenied, why))
}

// Close implements [brokers.Broker]. It closes the connections of a broker made by [Open], and with
// them what is still in progress when ctx ends. Those of [New] are the caller's: there, publishes
// that Close no longer waits for end with their own contexts.
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
