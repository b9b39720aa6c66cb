package worker

import (
	"context"
	"errors"
	"os"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub/pubsubconsumer"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

func openPubSub(ctx context.Context, address string) (*pubsub.Client, error) {
	return pubsub.NewClient(ctx, scenario.Project, append(gcppubsub.ClientOptions(), option.WithEndpoint(address), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))...)
}

// observePubSub pulls from all subscriptions and records each message. It pulls without the library's
// subscriber, which extends deadlines: so messages of a killed consumer are redelivered after the
// deadline of the subscription.
func observePubSub(ctx context.Context, ledger *scenario.Ledger) error {
	client, err := openPubSub(ctx, os.Getenv(ServerVariable))
	if err != nil {
		return err
	}
	var all errgroup.Group
	for _, stream := range scenario.Streams() {
		all.Go(func() error {
			for ctx.Err() == nil {
				if n, err := pull(ctx, client, stream, ledger); err != nil || n == 0 {
					wait(ctx, readPatience/5)
				}
			}
			return nil
		})
	}
	if err := errors.Join(all.Wait(), client.Close()); err != nil {
		return err
	}
	return ledger.Write(scenario.Line{Ended: true}) // what Google's library leaves behind is not ours
}

// pull makes one request for messages, and acknowledges them once they are recorded.
func pull(ctx context.Context, client *pubsub.Client, stream string, ledger *scenario.Ledger) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*readPatience)
	defer cancel()
	subscription := scenario.Subscription(stream)
	answer, err := client.SubscriptionAdminClient.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: 500})
	if err != nil || len(answer.GetReceivedMessages()) == 0 {
		return 0, err
	}
	var (
		lines []scenario.Line
		acks  []string
	)
	for _, m := range answer.GetReceivedMessages() {
		lines = append(lines, scenario.Line{Broker: scenario.PubSub, Stream: stream, Entry: m.GetMessage().GetMessageId(), Message: m.GetMessage().GetAttributes()["id"]})
		acks = append(acks, m.GetAckId())
	}
	if err := ledger.Write(lines...); err != nil {
		return 0, err
	}
	return len(lines), client.SubscriptionAdminClient.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: subscription, AckIds: acks})
}

// projectPubSub consumes the subscriptions of the projections.
func projectPubSub(p *projector, broker string, cfg config.Broker) error {
	client, err := openPubSub(context.Background(), settingsOf[*gcppubsub.Settings](cfg).Endpoint)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, client.Close)
	for _, stream := range scenario.Streams() {
		consumer, err := pubsubconsumer.NewConsumer(client, scenario.ProjectionSubscription(stream), p.handler,
			pubsubconsumer.Config{ConsumerConfig: configOf(broker)})
		if err != nil {
			return err
		}
		p.consumers = append(p.consumers, consumer)
	}
	return nil
}
