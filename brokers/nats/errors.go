package nats

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// A rule says what an error code of JetStream means.
type rule struct {
	class  brokers.Class
	scope  brokers.Scope
	advice string
}

const (
	storage = "raise max_file_store or max_memory_store of the server, or remove messages"
	account = "raise the limits of the account, or remove messages"
	quorum  = "start the servers of the cluster that are missing, most of which are needed to elect a leader; see nats server report jetstream"
	enable  = "enable JetStream in the server's configuration, and for the account"
	offline = "restart or upgrade the servers that hold the stream; see nats stream info"
)

// rules by error code. Everything else is retryable where others get through.
var rules = map[jetstream.ErrorCode]rule{
	10002: {brokers.ClassUnavailable, brokers.ScopeBroker, account},
	10008: {brokers.ClassUnavailable, brokers.ScopeBroker, quorum},
	10009: {brokers.ClassUnavailable, brokers.ScopeBroker, quorum},
	10023: {brokers.ClassUnavailable, brokers.ScopeBroker, storage},
	10028: {brokers.ClassUnavailable, brokers.ScopeBroker, storage},
	10047: {brokers.ClassUnavailable, brokers.ScopeBroker, storage},
	10035: {brokers.ClassUnavailable, brokers.ScopeBroker, "check the account of the user"},
	10039: {brokers.ClassUnavailable, brokers.ScopeBroker, enable},
	10076: {brokers.ClassUnavailable, brokers.ScopeBroker, enable},
	10120: {brokers.ClassUnavailable, brokers.ScopeBroker, "give the account limits for JetStream"},
	10059: {brokers.ClassUnavailable, brokers.ScopeDestination, missing},
	10074: {brokers.ClassUnavailable, brokers.ScopeDestination, "create streams with one replica, or run a cluster"},
	10052: {brokers.ClassUnavailable, brokers.ScopeDestination, "check the settings of the streams (stream)"},
	10053: {brokers.ClassUnavailable, brokers.ScopeDestination, "check the limits of the stream and of the account"},
	10122: {brokers.ClassUnavailable, brokers.ScopeDestination, "lower MaxBytes of the stream, or raise the account's limit"},
	10077: {
		brokers.ClassUnavailable, brokers.ScopeDestination,
		"the stream is full and discards new messages, or cannot be written: raise its limits, remove messages, see the server's log",
	},
	10109: {brokers.ClassUnavailable, brokers.ScopeDestination, "the stream is sealed permanently: create another one for the subject"},
	10118: {brokers.ClassUnavailable, brokers.ScopeDestination, offline},
	10194: {brokers.ClassUnavailable, brokers.ScopeDestination, offline},
	10167: {brokers.ClassUnavailable, brokers.ScopeDestination, "the stream is overloaded; this passes by itself"},
	10166: {brokers.ClassUnavailable, brokers.ScopeDestination, "let the stream allow per-message TTL (nats stream edit --allow-msg-ttl), or leave message_ttl out"},
	10158: {brokers.ClassUnavailable, brokers.ScopePartition, "the servers are still storing an earlier copy; this passes by itself"},
	10054: {brokers.ClassPermanent, "", "raise max_msg_size of the stream, or lower max_payload_bytes"},
	10097: {brokers.ClassPermanent, "", "send fewer attributes"},
}

// inProcess is the code of a message of which an earlier copy is not yet stored by most of the
// stream's servers, as after an acknowledgment that was lost, or where two processes publish it.
const inProcess = 10158

const missing = "create a stream with this subject (nats stream add), or let the broker do it (create_destinations)"

// deniedPublish is how a server says that a user may not publish to a subject.
var deniedPublish = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]+)"`)

func deniedSubject(err error) (subject string, found bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	parts := deniedPublish.FindStringSubmatch(err.Error())
	if parts == nil {
		return "", false
	}
	return parts[1], true
}

// errDenied is the error of a message that the server dropped.
var errDenied = errors.New("permissions violation: the user may not publish to the subject; allow it in the server's configuration or the user's JWT")

// errNotCreated is the error of a message whose stream is missing and could not be created.
var errNotCreated = errors.New("no stream takes the subject, and it could not be created")

// errNoAck is the error of a message that may have been stored or not.
var errNoAck = errors.New("no acknowledgment")

// errNoLeader is why a stream that exists does not answer.
var errNoLeader = errors.New("has no leader: start the servers that hold the stream, of which most are needed; see nats stream info")

// failed classifies why a message for a subject was not confirmed.
func (b *Broker) failed(ctx context.Context, subject string, err error) error {
	said := fmt.Errorf("nats: publish to %q: %w", subject, err)
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused):
		r, known := rules[refused.ErrorCode]
		switch {
		case known && r.class == brokers.ClassPermanent:
			// A limit of the stream, which may be below what any message has.
			return brokers.Refused(brokers.ScopeDestination, brokers.Permanent(adapter.Advise(said, r.advice)))
		case known:
			return brokers.Unavailable(r.scope, adapter.Advise(said, r.advice))
		case refused.Code == 503:
			return brokers.Unavailable(brokers.ScopeBroker, adapter.Advise(said, "see the server's log"))
		case errors.Is(err, errNotCreated): // which says nothing of the message
			return brokers.Unavailable(brokers.ScopeDestination, adapter.Advise(said, "check the limits of the account and the settings of CreateDestinations"))
		default:
			return brokers.Refused(brokers.ScopeDestination, brokers.Retryable(said))
		}
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return brokers.Unavailable(brokers.ScopeDestination, adapter.Advise(said, missing+"; where there is one, it has no leader (nats stream info)"))
	case errors.Is(err, errDenied), errors.Is(err, errNotCreated), errors.Is(err, errNoLeader):
		return brokers.Unavailable(brokers.ScopeDestination, said)
	case errors.Is(err, nats.ErrMaxPayload):
		return brokers.Refused(brokers.ScopeBroker,
			brokers.Permanent(fmt.Errorf("%w: the server takes %d bytes, headers included; raise its max_payload", said, b.conn.MaxPayload())))
	case errors.Is(err, jetstream.ErrInvalidJSAck):
		return brokers.Unavailable(brokers.ScopeDestination, adapter.Advise(said, "something else than a stream answers on this subject"))
	case errors.Is(ctx.Err(), context.Canceled):
		// The caller stopped waiting. Whether the message arrived is unknown, and the broker need
		// not be ill.
		return brokers.Retryable(said)
	default:
		// Disconnected, timed out, closed: whatever it is, it does not name a message.
		return brokers.Unreachable(brokers.ScopeBroker, fmt.Errorf("nats: publish to %q: %w", subject, b.explained(err)))
	}
}

// explained adds what is known about an outage, and what can be done.
func (b *Broker) explained(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		err = nats.ErrDisconnected
	}
	var (
		known   error
		trouble string
	)
	if noted := b.trouble.Load(); noted != nil {
		known = *noted
		if known.Error() != err.Error() {
			trouble = " (" + known.Error() + ")"
		}
	}
	switch last := b.conn.LastError(); {
	case b.conn.IsConnected() && errors.Is(err, errNoAck):
		return adapter.Advise(fmt.Errorf("%w%s", err, trouble), "the stream may have lost its quorum, which is most of its servers, or be overloaded; see nats stream info")
	case b.conn.IsConnected():
		return fmt.Errorf("%w%s", err, trouble)
	case isAuth(last) || isAuth(err) || isAuth(known):
		return adapter.Advise(fmt.Errorf("%w%s", err, trouble), "check user and password, token, credentials file or nkey")
	default:
		return adapter.Advise(fmt.Errorf("%w%s", err, trouble), "check that the server runs and can be reached")
	}
}

func isAuth(err error) bool {
	for _, target := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
