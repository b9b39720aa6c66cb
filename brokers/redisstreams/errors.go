package redisstreams

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/discreet"
	"github.com/gorm-fanout/fanout/internal/failure"
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

const cluster = "the server is a node of a cluster; use New with a cluster client (which sees this only while slots move)"

const needs = "the user needs XADD, EVALSHA and EVAL on this stream (with WithMaxAge TIME, with WithReplicas WAIT, with a database other than 0 SELECT)"

// A rule says what an error of the server means.
type rule struct {
	prefix string
	scope  brokers.Scope
	advice string
}

// rules for errors that are no message's fault, by how they begin. Everything else is retryable.
var rules = []rule{
	{"OOM", brokers.ScopeBroker, "raise maxmemory, or trim streams (WithMaxLen)"},
	{"READONLY", brokers.ScopeBroker, "this is a replica; connect to the primary, by Sentinel where there is a failover"},
	{"ERR WAIT cannot be used with replica", brokers.ScopeBroker, "connect to the primary, by Sentinel where there is a failover"},
	{"LOADING", brokers.ScopeBroker, "the server is starting; this passes by itself"},
	{"MASTERDOWN", brokers.ScopeBroker, "the replica has lost its primary; connect to the primary"},
	{"CLUSTERDOWN", brokers.ScopeBroker, "check CLUSTER INFO"},
	{"TRYAGAIN", brokers.ScopeBroker, "slots are being moved; this passes by itself"},
	{"MISCONF", brokers.ScopeBroker, "the server cannot save to disk; see its log"},
	{"NOREPLICAS", brokers.ScopeBroker, "too few replicas are connected (min-replicas-to-write)"},
	{"BUSY", brokers.ScopeBroker, "another script runs too long; SCRIPT KILL ends it"},
	{"NOAUTH", brokers.ScopeBroker, "the URL or the client needs a user and a password"},
	{"ERR Protocol error: unauthenticated", brokers.ScopeBroker, "the URL or the client needs a user and a password"}, // before NOAUTH
	{"WRONGPASS", brokers.ScopeBroker, "check user and password"},
	{"ERR AUTH", brokers.ScopeBroker, "check user and password"},             // a password where none is configured
	{"ERR invalid password", brokers.ScopeBroker, "check user and password"}, // up to Redis 5
	{"ERR DB index", brokers.ScopeBroker, "check the number of the database at the end of the URL"},
	{"ERR max number of clients", brokers.ScopeBroker, "raise maxclients, or lower pool_size"},
	{"ERR unknown command", brokers.ScopeBroker, "the server, or a proxy before it, does not know it; AUTH is needed where the URL has a password; XADD, EVALSHA, EVAL always"},
	{"NOPERM", brokers.ScopeDestination, needs},
	{"ERR The user executing the script", brokers.ScopeDestination, needs}, // Redis 7
	{"WRONGTYPE", brokers.ScopeDestination, "the key holds something else than a stream; rename the destination or the key"},
	{"MOVED", brokers.ScopeDestination, cluster},
	{"ASK", brokers.ScopeDestination, cluster},
}

// A serverError is what the server said about a message or a call.
type serverError struct{ text string }

func (e *serverError) Error() string { return e.text }

// wrapper is what Redis before 7 puts around an error inside a script: "@user_script: 25: -OOM
// command not allowed ...".
var wrapper = regexp.MustCompile(`^@user_script: ?\d+: `)

// refused classifies what the server said about a publish to a stream.
func refused(stream, text string) error {
	text = discreet.Text(strings.TrimPrefix(wrapper.ReplaceAllString(text, ""), "-"))
	if r, known := ruleFor(text); known {
		return brokers.Unavailable(r.scope, failure.Advise(fmt.Errorf("redisstreams: publish to %q: %w", stream, &serverError{text}), r.advice))
	}
	return brokers.Retryable(fmt.Errorf("redisstreams: publish to %q: %w", stream, &serverError{text}))
}

// ruleFor finds what is known of an error's text.
func ruleFor(text string) (rule, bool) {
	i := slices.IndexFunc(rules, func(r rule) bool { return text == r.prefix || strings.HasPrefix(text, r.prefix+" ") })
	if i < 0 {
		return rule{}, false
	}
	return rules[i], true
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
		return failure.Advise(err, "check the host of the URL, and name the server's certificate authority with WithTLS, or in the file "+
			"that the environment variable SSL_CERT_FILE names")
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return failure.Advise(err, "all connections are busy; raise pool_size")
	case errors.Is(err, redis.ErrClosed):
		return failure.Advise(err, "the client was closed before the broker")
	case errors.As(err, &refusal) && refusal.Op == "dial":
		return failure.Advise(err, "check that the server runs and can be reached")
	case errors.As(err, &said), isServerError(err):
		if r, known := ruleFor(err.Error()); known {
			return failure.Advise(err, r.advice)
		}
		return err
	default:
		return err
	}
}
