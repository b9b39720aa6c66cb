package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/googleapis/gax-go/v2/apierror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// A verdict says what a status of Pub/Sub means. Where the class is another one than unavailable, a
// scope is of what may refuse all messages: see [brokers.Refused].
type verdict struct {
	class  brokers.Class
	scope  brokers.Scope
	advice string
	silent bool // no server has said so: the client makes these codes of broken connections, too
}

// advise appends the advice to an error.
func (v verdict) advise(err error) error {
	return adapter.Advise(err, v.advice)
}

// verdicts by code; what is not listed is retryable where others get through. The documentation of the package has the same
// table.
var verdicts = map[codes.Code]verdict{
	codes.NotFound: {
		brokers.ClassUnavailable, brokers.ScopeDestination,
		"create the topic, or name another one (destination in the configuration, Settings.Topic in Go)", false,
	},
	codes.PermissionDenied: {
		brokers.ClassUnavailable, brokers.ScopeDestination,
		"the credentials need pubsub.topics.publish on the topic (roles/pubsub.publisher)", false,
	},
	codes.FailedPrecondition: {
		brokers.ClassUnavailable, brokers.ScopeDestination,
		"check the settings of the topic (its encryption key, its storage policy)", false,
	},
	codes.Unauthenticated: {
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"check the credentials (GOOGLE_APPLICATION_CREDENTIALS, gcloud auth application-default login)", false,
	},
	codes.Unavailable: {
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"check the network and the endpoint", true,
	},
	codes.DeadlineExceeded: noAnswer,
	codes.ResourceExhausted: {
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"the quota is used up; raise it or publish more slowly", false,
	},
	codes.Unimplemented: {
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"this is not Pub/Sub; check the endpoint", false,
	},
	codes.InvalidArgument: {
		// One message is malformed, or the schema or a transform of the topic fits none of them.
		brokers.ClassPermanent, brokers.ScopeDestination,
		"see the limits of Pub/Sub, and the schema and the transforms of the topic", false,
	},
}

// projectWide are the reasons (google.api.ErrorReason) of refusals that concern no topic in
// particular.
var projectWide = map[string]string{
	"SERVICE_DISABLED":                "enable the Pub/Sub API in the project",
	"BILLING_DISABLED":                "enable billing for the project",
	"CONSUMER_INVALID":                "check the project's id, and that of the quota project",
	"USER_PROJECT_DENIED":             "the credentials need serviceusage.services.use on the quota project (roles/serviceusage.serviceUsageConsumer)",
	"CONSUMER_SUSPENDED":              "the project is suspended",
	"ACCESS_TOKEN_SCOPE_INSUFFICIENT": "the credentials need the OAuth scope https://www.googleapis.com/auth/pubsub",
}

// known are the codes of a server that has not taken the messages. After any other it may have.
var known = []codes.Code{
	codes.InvalidArgument, codes.OutOfRange, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
	codes.FailedPrecondition, codes.ResourceExhausted, codes.Unimplemented,
}

var (
	noAnswer = verdict{
		brokers.ClassUnavailable, brokers.ScopeBroker,
		"no answer in time; check the network and the endpoint, or raise Timeout", true,
	}
	closed   = verdict{brokers.ClassUnavailable, brokers.ScopeBroker, "the client was closed before the broker", false}
	tooLarge = verdict{brokers.ClassPermanent, "", "the server takes smaller messages than Pub/Sub does", false}
	// What the server says of no one in particular, such as INTERNAL, may be an outage.
	unlisted  = verdict{brokers.ClassRetryable, brokers.ScopeDestination, "", false}
	retryable = verdict{class: brokers.ClassRetryable}
)

// classified turns the error of a request to topic into one of the contract. call is the context
// that the request had, ctx the one that it was made from.
func (b *Broker) classified(ctx, call context.Context, topic string, err error) error {
	v := b.judge(ctx, call, topic, err)
	return &brokers.Error{Class: v.class, Scope: v.scope, Unanswered: v.silent, Err: v.advise(fmt.Errorf("gcppubsub: publish to %q: %w", topic, err))}
}

// over is true when a request's time has run out. The server has the same deadline, and its word
// can be here before our clock has struck.
func over(call context.Context) bool {
	deadline, set := call.Deadline()
	return call.Err() != nil || (set && time.Until(deadline) < 50*time.Millisecond)
}

func (b *Broker) judge(ctx, call context.Context, topic string, err error) verdict {
	code := status.Code(err)
	switch {
	case code == codes.Canceled && strings.Contains(err.Error(), "the client connection is closing"):
		return closed // gRPC has no other name for it
	case !over(call), code != codes.DeadlineExceeded && code != codes.Canceled:
		return b.judgeAnswer(topic, code, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return retryable // the caller stopped waiting: whether the messages arrived is unknown
	default:
		// Time ran out on our side. Silence names no message: as far as we know the server is out.
		// (A message that brings this about each time while others pass is for the processor to
		// find.)
		return noAnswer
	}
}

// judgeAnswer judges the server's own word.
func (b *Broker) judgeAnswer(topic string, code codes.Code, err error) verdict {
	v, listed := verdicts[code]
	switch {
	case !listed:
		return unlisted
	case code == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"):
		return tooLarge // said by gRPC itself
	case code == codes.NotFound && strings.Contains(err.Error(), "project not found"):
		v.advice = "check the project's id"
		if strings.HasPrefix(topic, topicName(b.client.Project(), "")) {
			v.scope = brokers.ScopeBroker
		}
	case v.class == brokers.ClassUnavailable && v.scope == brokers.ScopeDestination:
		if advice, found := projectWide[reason(err)]; found {
			v.scope, v.advice = brokers.ScopeBroker, advice
		}
	}
	return v
}

// reason of an error as Google's services give it beside the text; empty where they give none.
func reason(err error) string {
	if detailed, ok := apierror.FromError(err); ok {
		return detailed.Reason()
	}
	return ""
}
