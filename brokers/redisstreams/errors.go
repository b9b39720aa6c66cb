package redisstreams

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/internal/discreet"
	"github.com/gorm-fanout/fanout/internal/redisreply"
)

// dataField is the field of an entry that holds the payload; a contract with consumers.
const dataField = "data"

// check says why a message can never be added, nil = it can.
func (o *options) check(m *brokers.Message) error {
	if m.Destination == "" {
		return errors.New("the destination is empty")
	}
	if len(m.Payload) > o.maxBytes {
		return fmt.Errorf("the payload has %d bytes, at most %d are allowed", len(m.Payload), o.maxBytes)
	}
	if n := size(m); n > maxEntryBytes {
		return fmt.Errorf("the entry has %d bytes, its attributes included, and Redis stores at most %d", n, maxEntryBytes)
	}
	return nil
}

// attributesOf are the attributes that an entry can have beside the payload, and the names of those
// that it cannot: a second field of the payload's name, and what is beyond the most fields that a
// script can hand on.
func attributesOf(m *brokers.Message) (kept []brokers.Attribute, omitted []string) {
	named := func(a brokers.Attribute) bool { return a.Name == dataField }
	if len(m.Attributes) <= maxFields && !slices.ContainsFunc(m.Attributes, named) {
		return m.Attributes, nil
	}
	for _, a := range m.Attributes {
		if named(a) || len(kept) == maxFields {
			omitted = append(omitted, a.Name)
		} else {
			kept = append(kept, a)
		}
	}
	return kept, omitted
}

const needs = "the user needs XADD, EVALSHA and EVAL on this stream (with max_age TIME, with replicas WAIT, with a database other than 0 SELECT)"

// A serverError is what the server said about a message or a call.
type serverError struct{ text string }

func (e *serverError) Error() string { return e.text }

// refused classifies what the server said about a publish to a stream.
func (b *Broker) refused(stream, text string) error {
	text = discreet.Text(redisreply.Bare(text))
	err := fmt.Errorf("redisstreams: publish to %q: %w", stream, &serverError{text})
	m, known := redisreply.Find(text)
	if !known {
		return brokers.Refused(brokers.ScopeDestination, brokers.Retryable(err))
	}
	scope := b.wholeScope()
	if m.About == redisreply.Key {
		scope = brokers.ScopeDestination
	}
	return brokers.Unavailable(scope, adapter.Advise(err, cmp.Or(m.Advice, needs)))
}

func isServerError(err error) bool {
	var said *serverError
	return errors.As(err, &said)
}

// explained adds what can be done about an error that did not come from the server, or that the
// server answered a ping with.
func explained(err error) error {
	var (
		said      redis.Error
		refusal   *net.OpError
		untrusted *tls.CertificateVerificationError
	)
	if plain := discreet.Text(err.Error()); plain != err.Error() {
		err = &serverError{plain} // it had repeated the password, which must not get into rows and logs
	}
	switch {
	case errors.As(err, &untrusted):
		return adapter.Advise(err, "check the host of the URL, and name the server's certificate authority with TLSConfig, or in the file "+
			"that the environment variable SSL_CERT_FILE names")
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return adapter.Advise(err, "all connections are busy; raise pool_size")
	case errors.Is(err, redis.ErrClosed):
		return adapter.Advise(err, "the client was closed before the broker")
	case errors.As(err, &refusal) && refusal.Op == "dial":
		return adapter.Advise(err, "check that the server runs and can be reached")
	case errors.As(err, &said), isServerError(err):
		if m, known := redisreply.Find(redisreply.Bare(err.Error())); known {
			return adapter.Advise(err, cmp.Or(m.Advice, needs))
		}
		return err
	default:
		return err
	}
}
