package watermill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/gorm-fanout/fanout/brokers"
)

// classified gives the error of a publisher its class, as far as it is known.
func (o *options) classified(ctx context.Context, topic string, err error) error {
	if o.classify != nil {
		if judged := o.classify(err); judged != nil {
			err = judged
		}
	}
	judged := &brokers.Error{Class: brokers.ClassRetryable, Scope: brokers.ScopeDestination} // as brokers.Refused
	cause := err
	switch own := (*brokers.Error)(nil); {
	case errors.As(err, &own), errors.Is(err, brokers.ErrNotSent), errors.Is(err, brokers.ErrClosed):
		judged.Class, judged.Scope = brokers.Classify(err)
		judged.Unanswered = brokers.Unanswered(err)
		if scope, refused := brokers.Refusal(err); refused {
			judged.Scope = scope
		}
		if err == error(own) { //nolint:errorlint // only the class right on top is replaced by the one below
			cause = own.Err
		}
	case ctx.Err() != nil:
		return unconfirmed(ctx, topic, err)
	case outage(err):
		judged.Class, judged.Scope, judged.Unanswered = brokers.ClassUnavailable, brokers.ScopeBroker, true
	}
	judged.Err = fmt.Errorf("watermill: publish to %q: %w", topic, cause)
	return judged
}

// outage is true for errors of the network, of connections that were closed, and of time that ran
// out: they do not name a message.
func outage(err error) bool {
	if network := net.Error(nil); errors.As(err, &network) { // timeouts of a context are among them
		return true
	}
	for _, known := range []error{context.Canceled, net.ErrClosed, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// unconfirmed is the result of a message that was handed to the publisher and had no answer when
// the context ended.
func unconfirmed(ctx context.Context, topic string, cause error) error {
	err := fmt.Errorf("watermill: publish to %q: no confirmation by the time the context ended: %w", topic, cause)
	if errors.Is(ctx.Err(), context.Canceled) {
		return brokers.Retryable(err) // the caller stopped waiting; the broker need not be unavailable
	}
	return brokers.Unreachable(brokers.ScopeBroker, err)
}
