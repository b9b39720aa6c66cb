package pubsubconsumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/inbox/consumer"
)

// receive runs Google's client until ctx ends or it cannot continue. The cause of ctx is an error
// that ends it.
func (r *run) receive(ctx context.Context) error {
	for failures := 1; ; failures++ {
		subscriber := r.client.Subscriber(r.subscription)
		settings := &subscriber.ReceiveSettings
		settings.MaxExtension = r.config.MaxExtension
		settings.MinDurationPerAckExtension, settings.MaxDurationPerAckExtension = r.config.Lease, r.config.Lease
		settings.MaxOutstandingMessages, settings.MaxOutstandingBytes = r.config.MaxOutstandingMessages, r.config.MaxOutstandingBytes
		before := r.arrived.Load()
		err := subscriber.Receive(ctx, r.arrive)
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if final := r.final(err); final != nil {
			return final
		}
		if r.arrived.Load() > before {
			failures = 1
		}
		delay := r.pace.again.Delay(failures)
		r.log.WarnContext(ctx, "receiving interrupted", "retry_in", delay, "error", err)
		if !consumer.Pause(ctx, delay) {
			return ended(ctx)
		}
	}
}

// ended is the error of a context that ended: nil where it was told to.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// remedies by code, for errors that waiting does not cure.
var remedies = map[codes.Code]string{
	codes.NotFound:           "create the subscription, or check its name and the project",
	codes.PermissionDenied:   "the credentials need pubsub.subscriptions.consume on the subscription (roles/pubsub.subscriber)",
	codes.InvalidArgument:    "check the name of the subscription and the configuration",
	codes.FailedPrecondition: "check the subscription: one that pushes, or that was detached from its topic, cannot be pulled from",
	codes.Unimplemented:      "this is not Pub/Sub; check the endpoint",
}

// final is the error that Run ends with; nil for one that is waited for.
func (c *Consumer) final(err error) error {
	code := status.Code(err)
	remedy, found := remedies[code]
	if code == codes.Canceled && strings.Contains(err.Error(), "the client connection is closing") {
		remedy, found = "the client was closed before the consumer had stopped; close it after Run has returned", true
	}
	if !found {
		return nil
	}
	return fmt.Errorf("pubsubconsumer: consume %s: %w: %s", c.subscription, err, remedy)
}

// watch looks at the subscription at the start, and whenever nothing arrives for a while: Google's
// client does not say that the server is out. No permission is needed; with that to look
// (pubsub.subscriptions.get) it also knows the settings.
func (r *run) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	outage := consumer.Outage{Log: r.log, Steady: time.Second} // what a connection waits at first before it tries again
	known := false
	for before := int64(0); ; before = r.arrived.Load() {
		if before == r.arrived.Load() {
			found, err := r.inspect(ctx)
			switch code := status.Code(err); {
			case ctx.Err() != nil:
				return
			case code == codes.NotFound:
				cancel(r.final(err))
				return
			case err != nil && code != codes.PermissionDenied:
				outage.Failed(ctx, err)
			default:
				outage.Over(ctx)
				if !known {
					known = true
					r.remark(ctx, found, err)
				}
			}
		}
		if !consumer.Pause(ctx, r.pace.probe) {
			return
		}
	}
}

// inspect gets the subscription.
func (r *run) inspect(ctx context.Context) (*pubsubpb.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.pace.probe, time.Second))
	defer cancel()
	return r.client.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: r.subscription},
		gax.WithRetry(func() gax.Retryer { return nil }))
}

// remark says what is worth knowing of the settings of a subscription.
func (r *run) remark(ctx context.Context, found *pubsubpb.Subscription, err error) {
	if err != nil {
		r.log.DebugContext(ctx, "settings of the subscription unknown", "error", err)
		return
	}
	if !found.GetEnableMessageOrdering() {
		r.unordered.Store(true)
		r.log.WarnContext(ctx, "message ordering not enabled")
	}
	if r.letters == "" && found.GetDeadLetterPolicy() == nil {
		r.log.InfoContext(ctx, "no place for dead letters")
	}
}
