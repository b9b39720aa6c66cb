package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers"
)

// A verdict says what a status of Pub/Sub means.
type verdict struct {
	class  brokers.Class
	scope  brokers.Scope
	advice string
}

// verdicts by code; what is not listed is retryable.
var verdicts = map[codes.Code]verdict{
	codes.NotFound: {
		brokers.ClassUnavailable, brokers.ScopeDestination,
		"create the topic, or map the destination to another one with WithTopic",
	},
	codes.PermissionDenied: {
		brokers.ClassUnavailable, brokers.ScopeDestination,
		"the credentials need pubsub.topics.publish on the topic (roles/pubsub.publisher)",
	},
	codes.FailedPrecondition: {
		brokers.ClassUnavailable, brokers.ScopeDestination,
		"check the settings of the topic (its encryption key, its schema)",
	},
	codes.Unauthenticated: {
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"check the credentials (GOOGLE_APPLICATION_CREDENTIALS, gcloud auth application-default login)",
	},
	codes.Unavailable: {
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"check the network and the endpoint",
	},
	codes.ResourceExhausted: {
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"the quota is used up; raise it or publish more slowly",
	},
	codes.Unimplemented: {
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"this is not Pub/Sub; check the endpoint",
	},
	codes.InvalidArgument: {
		brokers.ClassPermanent, "",
		"Pub/Sub will never take this message; see its limits and the schema of the topic",
	},
}

var (
	noAnswer = verdict{
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"no answer in time; check the network and the endpoint, or raise WithTimeout",
	}
	closed    = verdict{brokers.ClassUnavailable, brokers.ScopeBroker, "the client was closed before the broker"}
	tooLarge  = verdict{brokers.ClassPermanent, "", "the server takes smaller messages than Pub/Sub does"}
	retryable = verdict{class: brokers.ClassRetryable}
)

// classified turns the error of a request to topic into one of the contract. call is the context that the request had, ctx the
// one that it was made from.
func classified(ctx, call context.Context, topic string, err error) error {
	v := judge(ctx, call, err)
	err = fmt.Errorf("gcppubsub: publish to %q: %w", topic, err)
	if v.advice != "" {
		err = fmt.Errorf("%w: %s", err, v.advice)
	}
	return &brokers.Error{Class: v.class, Scope: v.scope, Err: err}
}

// over is true when a request's time has run out. The server has the same deadline, and its word can be here before our clock
// has struck.
func over(call context.Context) bool {
	deadline, set := call.Deadline()
	return call.Err() != nil || (set && time.Until(deadline) < 50*time.Millisecond)
}

func judge(ctx, call context.Context, err error) verdict {
	code := status.Code(err)
	switch {
	case code == codes.Canceled && strings.Contains(err.Error(), "the client connection is closing"):
		return closed // gRPC has no other name for it
	case !over(call), code != codes.DeadlineExceeded && code != codes.Canceled:
		// The server's own word, below.
	case errors.Is(ctx.Err(), context.Canceled):
		return retryable // somebody stopped waiting: whether the messages arrived is unknown
	default:
		// Time ran out on our side. Silence names no message: as far as we know the server is out. (A message that brings this
		// about each time while others pass is for the processor to find.)
		return noAnswer
	}
	if code == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max") {
		return tooLarge // said by gRPC itself
	}
	if v, known := verdicts[code]; known {
		return v
	}
	return retryable
}
