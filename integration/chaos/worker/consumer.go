package worker

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// readPatience bounds one call of a consumer.
const readPatience = time.Second

// redisReader follows streams and records each message.
type redisReader struct {
	client *redis.Client
	ledger *scenario.Ledger
	last   map[string]string // by stream
}

func readRedis(ctx context.Context, ledger *scenario.Ledger) error {
	redis.SetLogger(silent{})
	options, err := redis.ParseURL(os.Getenv(ServerVariable))
	if err != nil {
		return err
	}
	options.ReadTimeout, options.MaxRetries = 2*readPatience, -1
	r := &redisReader{client: redis.NewClient(options), ledger: ledger, last: map[string]string{}}
	for _, stream := range scenario.Streams() {
		r.last[stream], r.last[scenario.PartnerPrefix+stream] = "0", "0"
	}
	if err := scenario.ReadLedger(os.Getenv(LedgerVariable), func(line scenario.Line) {
		if line.Entry != "" {
			r.last[line.Stream] = line.Entry
		}
	}); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := r.read(ctx); err != nil {
			wait(ctx, readPatience/5)
		}
	}
	if err := r.client.Close(); err != nil {
		return err
	}
	return ledger.Write(scenario.Line{Ended: true})
}

func (r *redisReader) read(ctx context.Context) error {
	streams, ids := []string{}, []string{}
	for stream, id := range r.last {
		streams, ids = append(streams, stream), append(ids, id)
	}
	found, err := r.client.XRead(ctx, &redis.XReadArgs{Streams: slices.Concat(streams, ids), Count: 500, Block: readPatience}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, stream := range found {
		lines := make([]scenario.Line, 0, len(stream.Messages))
		for _, entry := range stream.Messages {
			id, _ := entry.Values["id"].(string)
			lines = append(lines, scenario.Line{Stream: stream.Stream, Entry: entry.ID, Message: id})
			r.last[stream.Stream] = entry.ID
		}
		if err := r.ledger.Write(lines...); err != nil {
			return err
		}
	}
	return nil
}

// readPubSub pulls from all subscriptions and records each message. It pulls without the library's
// subscriber, which extends deadlines: so messages of a killed consumer are redelivered after the
// deadline of the subscription.
func readPubSub(ctx context.Context, ledger *scenario.Ledger) error {
	client, err := pubsub.NewClient(ctx, scenario.Project, append(gcppubsub.ClientOptions(), option.WithEndpoint(os.Getenv(ServerVariable)), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))...)
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
		lines = append(lines, scenario.Line{Stream: stream, Entry: m.GetMessage().GetMessageId(), Message: m.GetMessage().GetAttributes()["id"]})
		acks = append(acks, m.GetAckId())
	}
	if err := ledger.Write(lines...); err != nil {
		return 0, err
	}
	return len(lines), client.SubscriptionAdminClient.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: subscription, AckIds: acks})
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
