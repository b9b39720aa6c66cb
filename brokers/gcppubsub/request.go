package gcppubsub

import (
	"context"
	"math/rand/v2"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// withoutRetry switches the client's retries off: they go on until the deadline, and then hide behind it what the trouble was.
var withoutRetry = gax.WithRetry(func() gax.Retryer { return nil })

// pauses before the second and the third attempt of a request. They take Pub/Sub's everyday hiccups; an outage is the
// processor's business. The repeat of a request cannot overtake anything: its key waits for it.
var pauses = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond}

// request sends a batch and returns the ids of its messages, or a classified error. Pub/Sub takes all of it or nothing.
func (p *publication) request(parent context.Context, b *batch) ([]string, error) {
	ctx, cancel := context.WithTimeout(parent, p.options.timeout)
	defer cancel()
	create := p.options.createTopics
	for attempt := 0; ; attempt++ {
		response, err := p.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: b.topic, Messages: b.messages}, withoutRetry)
		if err == nil {
			return response.GetMessageIds(), nil
		}
		if status.Code(err) == codes.NotFound && create {
			create = false
			if err = p.createTopic(ctx, b.topic); err == nil {
				attempt--
				continue
			}
		}
		if attempt == len(pauses) || !passing(err) || !pause(ctx, pauses[attempt]) {
			return nil, classified(parent, ctx, b.topic, err)
		}
	}
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
