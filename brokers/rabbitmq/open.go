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

// Open returns a broker. It does not connect yet: use Ping to find out. No part of the URL appears in an
// error, save the address.
func Open(settings Settings) (*Broker, error) {
	uri, err := parseURL(settings.URL.Reveal())
	if err != nil {
		return nil, err
	}
	o := settings.options()
	if o.tls == nil {
		if o.tls, err = settings.TLS.Config(); err != nil {
			return nil, fmt.Errorf("rabbitmq: open: %w", err)
		}
	}
	if err := settings.check(&o, uri.Scheme == "amqps"); err != nil {
		return nil, err
	}
	b := &Broker{
		options: o, url: settings.URL.Reveal(),
		dialTimeout: cmp.Or(time.Duration(uri.ConnectionTimeout)*time.Millisecond, defaultDialTimeout),
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.limit.Store(int64(o.maxBytes))
	return b, nil
}

func parseURL(text string) (amqp.URI, error) {
	uri, err := amqp.ParseURI(text)
	if err != nil || uri.ConnectionTimeout < 0 {
		return uri, errURL
	}
	return uri, nil
}
