package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// errURL says nothing about the URL it got: a parser's message would quote it, and with it the
// password. What fails to parse is often the password itself, unescaped.
var errURL = errors.New("rabbitmq: open: the URL is not understood; write amqp://user:password@host:port/vhost, or amqps:// for TLS, " +
	"and escape special characters in the password and the virtual host (@ is %40, / is %2F, # is %23, ? is %3F)")

// Open returns a broker for the server at a URL. It does not connect yet: use Ping to find out.
//
// The URL is amqp://user:password@host:port/vhost, or amqps:// for TLS
// (https://www.rabbitmq.com/docs/uri-spec), with the parameters heartbeat (seconds),
// connection_timeout (milliseconds, to connect and log in; default 10 s), auth_mechanism, and those of
// TLS. No part of it appears in an error, save the address. guest, the user that a new server has, may
// log in from the server's own machine only.
func Open(url string, opts ...Option) (*Broker, error) {
	uri, err := amqp.ParseURI(url)
	if err != nil || uri.ConnectionTimeout < 0 {
		return nil, errURL
	}
	o := defaults()
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case len(o.exchange) > maxShort:
		return nil, fmt.Errorf("rabbitmq: open: the name of the exchange has %d bytes, AMQP takes %d", len(o.exchange), maxShort)
	case o.tls != nil && uri.Scheme != "amqps":
		return nil, errors.New("rabbitmq: open: WithTLS needs a URL that begins with amqps://")
	}
	b := &Broker{
		options: o, url: url,
		dialTimeout: cmp.Or(time.Duration(uri.ConnectionTimeout)*time.Millisecond, defaultDialTimeout),
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.limit.Store(int64(o.maxBytes))
	return b, nil
}
