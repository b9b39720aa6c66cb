package gcppubsub

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

// withoutRetry switches the client's retries off: they go on until the deadline, and then hide
// behind it what the trouble was.
var withoutRetry = gax.WithRetry(func() gax.Retryer { return nil })

// pauses before the second and the third attempt of a request. They take Pub/Sub's everyday
// hiccups; an outage is the processor's business. The repeat of a request cannot overtake anything:
// its key waits for it.
var pauses = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond}

// request sends a batch and returns the ids of its messages, or a classified error. Pub/Sub takes
// all of it or nothing. Messages that have failed before without anybody knowing why are not sent
// patiently again.
func (p *publication) request(parent context.Context, b *batch) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(parent, p.options.timeout)
	defer cancel()
	opts := p.callOptions(b)
	publish := func() error {
		response, err := p.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: b.topic, Messages: b.messages}, opts...)
		ids = response.GetMessageIds()
		if err != nil && !slices.Contains(known, status.Code(err)) {
			b.unsure = p.classified(parent, ctx, b.topic, err)
		}
		return err
	}
	if b.unsure == nil {
		err = patiently(ctx, publish)
	} else {
		err = publish()
	}
	if status.Code(err) == codes.NotFound && p.options.createTopics {
		if err = p.createTopic(ctx, b.topic); err == nil {
			err = patiently(ctx, publish)
		}
	}
	if err != nil {
		return nil, p.classified(parent, ctx, b.topic, err)
	}
	return ids, nil
}

// callOptions of a request with a batch.
func (p *publication) callOptions(b *batch) []gax.CallOption {
	opts := []gax.CallOption{withoutRetry}
	if p.options.compressFrom > 0 && b.bytes >= p.options.compressFrom {
		opts = append(opts, gax.WithGRPCOptions(grpc.UseCompressor(gzip.Name)))
	}
	return opts
}

// patiently makes a call, and makes it again when a moment's patience may cure its error.
func patiently(ctx context.Context, call func() error) error {
	err := call()
	for _, d := range pauses {
		if !passing(err) || !pause(ctx, d) {
			break
		}
		err = call()
	}
	return err
}

// passing is true for an error that a moment's patience may cure.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Aborted, codes.Internal:
		return true
	default:
		return false
	}
}

// pause waits for about d, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
