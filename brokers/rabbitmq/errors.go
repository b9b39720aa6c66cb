package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// A verdict says what an error means that is no message's fault.
type verdict struct {
	scope  brokers.Scope
	advice string
}

// advise appends the advice to an error.
func (v verdict) advise(err error) error {
	return adapter.Advise(err, v.advice)
}

// A rule says what a reply code of the server means, where its text contains a phrase; the first that
// fits counts. The documentation of the package has the same table.
type rule struct {
	code   int
	phrase string
	verdict
}

var rules = []rule{
	{amqp.AccessRefused, "access to topic ", verdict{
		brokers.ScopeDestination, "the user needs permission to write to this routing key (rabbitmqctl set_topic_permissions)",
	}},
	{amqp.AccessRefused, "internal exchange", verdict{
		brokers.ScopeBroker, "clients may not publish to an internal exchange; name another one (exchange)",
	}},
	{amqp.AccessRefused, "access to exchange ", verdict{
		brokers.ScopeBroker, "the user needs permission to write to the exchange, and with create_destinations to configure it (rabbitmqctl " +
			"set_permissions)",
	}},
	{amqp.AccessRefused, "", verdict{
		brokers.ScopeBroker, "check user and password in the URL, and that this is a port of AMQP; guest may log in from the server's own " +
			"machine only; RabbitMQ says the same of a connection that is lost while logging in",
	}},
	{amqp.NotAllowed, "limit", verdict{
		brokers.ScopeBroker, "raise the limit of connections of the virtual host or the user, or close some",
	}},
	{amqp.NotAllowed, "", verdict{
		brokers.ScopeBroker, "check the virtual host at the end of the URL (/ is %2F), and that the user may use it (rabbitmqctl set_permissions)",
	}},
	{amqp.NotFound, "no exchange ", verdict{
		brokers.ScopeBroker, "declare the exchange, let the broker do it (create_destinations), or name another one (exchange)",
	}},
	{amqp.PreconditionFailed, "inequivalent arg", verdict{
		brokers.ScopeBroker, "the exchange is there with another type or other properties than a durable one of type topic has: declare it " +
			"yourself and leave create_destinations out, or name another one (exchange)",
	}},
	{amqp.ConnectionForced, "", verdict{
		brokers.ScopeBroker, "the server is shutting down, or an operator closed the connection; this passes by itself",
	}},
	{amqp.FrameError, "", verdict{brokers.ScopeBroker, "the connection broke; check the network, and the server's log"}},
	{amqp.ChannelError, "id space exhausted", verdict{
		brokers.ScopeBroker, "raise channel_max of the server or of the URL, or publish with less concurrency",
	}},
}

// judge finds what an error means that did not come from a message: from connecting, opening a
// channel, or losing one of them.
func (b *Broker) judge(err error) verdict {
	var (
		said      *amqp.Error
		blocked   *alarm
		untrusted *tls.CertificateVerificationError
		noTLS     tls.RecordHeaderError
		refusal   *net.OpError
	)
	switch {
	case errors.As(err, &blocked):
		return verdict{brokers.ScopeBroker, "free memory or disk space of the server (rabbitmq-diagnostics alarms); this passes by itself then"}
	case errors.As(err, &said):
		for _, r := range rules {
			if r.code == said.Code && strings.Contains(said.Reason, r.phrase) {
				return r.verdict
			}
		}
	case errors.As(err, &untrusted):
		return verdict{brokers.ScopeBroker, "check the host of the URL, and name the server's certificate authority (tls.ca_file), with " +
			"cacertfile in the URL, or in the file that the environment variable SSL_CERT_FILE names"}
	case errors.As(err, &noTLS):
		return verdict{brokers.ScopeBroker, "the port does not talk TLS; it is 5671 as a rule, or write amqp://"}
	case errors.As(err, &refusal) && refusal.Op == "dial", errors.Is(err, context.DeadlineExceeded):
		return verdict{brokers.ScopeBroker, "check that the server runs and can be reached"}
	}
	return verdict{scope: brokers.ScopeBroker}
}

// tooLarge is how RabbitMQ refuses a message above max_message_size: with 406, and by closing the
// channel.
var tooLarge = regexp.MustCompile(`message size \d+ is larger than configured max size (\d+)`)

// limitIn returns the server's limit where an error is about a message above it, otherwise 0.
func limitIn(err *amqp.Error) int64 {
	if err == nil || err.Code != amqp.PreconditionFailed {
		return 0
	}
	if found := tooLarge.FindStringSubmatch(err.Reason); found != nil {
		if limit, err := strconv.ParseInt(found[1], 10, 64); err == nil {
			return limit
		}
	}
	return 0
}

// forbids is true where an error is about the routing key.
func forbids(err *amqp.Error, key string) bool {
	return err != nil && err.Code == amqp.AccessRefused && strings.Contains(err.Reason, "access to topic '"+key+"' ")
}
