package nats

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
)

// What the server and the client say, and what it means.
func TestErrors(t *testing.T) {
	t.Parallel()
	conn := &nats.Conn{} // connected to nothing
	b := &Broker{options: options{timeout: defaultTimeout}, conn: conn}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	api := func(code jetstream.ErrorCode, status int) error {
		return fmt.Errorf("nats: %w", &jetstream.APIError{Code: status, ErrorCode: code, Description: "said"})
	}
	for _, test := range []struct {
		err   error
		ctx   context.Context
		class brokers.Class
		scope brokers.Scope
		says  string
	}{
		{err: jetstream.ErrNoStreamResponse, class: brokers.ClassUnavailable, scope: brokers.ScopeDestination, says: "create a stream"},
		{err: jetstream.ErrJetStreamNotEnabled, class: brokers.ClassUnavailable, scope: brokers.ScopeBroker, says: enable},
		{err: jetstream.ErrJetStreamNotEnabledForAccount, class: brokers.ClassUnavailable, scope: brokers.ScopeBroker, says: enable},
		{err: jetstream.ErrInvalidJSAck, class: brokers.ClassUnavailable, scope: brokers.ScopeDestination, says: "something else than a stream"},
		{err: errDenied, class: brokers.ClassUnavailable, scope: brokers.ScopeDestination, says: "may not publish"},
		{err: errNotCreated, class: brokers.ClassUnavailable, scope: brokers.ScopeDestination, says: "could not be created"},
		{err: nats.ErrMaxPayload, class: brokers.ClassPermanent, says: "raise its max_payload"},
		{err: nats.ErrDisconnected, class: brokers.ClassUnavailable, scope: brokers.ScopeBroker, says: "check that the server runs"},
		{err: nats.ErrReconnectBufExceeded, class: brokers.ClassUnavailable, scope: brokers.ScopeBroker, says: nats.ErrDisconnected.Error()},
		{err: nats.ErrAuthorization, class: brokers.ClassUnavailable, scope: brokers.ScopeBroker, says: "check user and password"},
		{err: jetstream.ErrAsyncPublishTimeout, class: brokers.ClassUnavailable, scope: brokers.ScopeBroker},
		{err: context.DeadlineExceeded, class: brokers.ClassUnavailable, scope: brokers.ScopeBroker},
		{err: context.Canceled, ctx: ended, class: brokers.ClassRetryable},
		{err: errors.New("whatever"), class: brokers.ClassUnavailable, scope: brokers.ScopeBroker},
		{err: api(10077, 503), class: brokers.ClassUnavailable, scope: brokers.ScopeDestination, says: "the stream is full"},
		{err: api(10054, 400), class: brokers.ClassPermanent, says: "raise max_msg_size"},
		{err: api(10060, 400), class: brokers.ClassRetryable, says: "said"},
		{err: api(19999, 503), class: brokers.ClassUnavailable, scope: brokers.ScopeBroker, says: "see the server's log"},
	} {
		ctx := test.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		got := b.failed(ctx, "ordering.order", test.err)
		class, scope := brokers.Classify(got)
		assert.Equal(t, test.class, class, "%v", got)
		assert.Equal(t, test.scope, scope, "%v", got)
		require.ErrorContains(t, got, test.says)
		require.ErrorContains(t, got, `nats: publish to "ordering.order": `)
		assert.NotErrorIs(t, got, brokers.ErrNotSent, "it was handed over")
	}
}

//go:embed doc.go
var docGo string

// Each code that has a rule stands in the documentation, with its class and scope.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	for code, r := range rules {
		words := string(r.class)
		if r.scope != "" {
			words += " " + string(r.scope)
		}
		assert.Regexp(t, fmt.Sprintf(`(?m)^//\t.*\b%d\b.* %s `, code, words), docGo, "%d", code)
	}
}
