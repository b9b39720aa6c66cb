package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	// DefaultExchange is the exchange that messages go to where [Settings.Exchange] names no other one.
	DefaultExchange = "fanout"

	// defaultMaxMessageBytes is the largest payload where [Settings.MaxMessageBytes] says nothing: that of
	// RabbitMQ 4.0 and later (max_message_size). Up to 3.13 the server's default is 128 MiB.
	defaultMaxMessageBytes = 16 << 20

	defaultHeartbeat   = 10 * time.Second
	defaultDialTimeout = 10 * time.Second
)

// Settings are those of one broker, in Go and in a configuration of type rabbitmq. What has no
// sensible meaning (a negative number) counts as not given.
type Settings struct {
	// URL is amqp://user:password@host:port/vhost, or amqps:// for TLS
	// (https://www.rabbitmq.com/docs/uri-spec), with the parameters heartbeat (seconds),
	// connection_timeout (milliseconds, to connect and log in; default 10 s), auth_mechanism, and those
	// of TLS. guest, the user that a new server has, may log in from the server's own machine only.
	// Required.
	URL adapter.Secret `config:"url"`
	// Exchange that messages go to, of whatever type. It has to exist, unless CreateDestinations is
	// set. Default: [DefaultExchange].
	Exchange string `config:"exchange"`
	// Unroutable says what becomes of a message that no queue is bound for: with "wait" it waits
	// (unavailable, scope destination) until there is a binding; with "drop" it counts as published, and
	// RabbitMQ drops it. Default: "wait".
	Unroutable string `config:"unroutable,one=wait|drop"`
	// Expiration has RabbitMQ drop, or dead-letter, a message that has been in a queue for so long, in
	// whole milliseconds. Default: 0, only messages with a time to live expire, when that is over, and
	// whichever of the two is shorter holds. What has expired is lost for a consumer that was away for
	// longer. RabbitMQ takes no expiration above ten years (3,650 days): such messages do not expire.
	Expiration time.Duration `config:"expiration,min=1ms"`
	// CreateDestinations declares the exchange with each new connection: of type topic, and durable.
	// Queues and bindings are the consumers' to declare. The user needs permission to configure the
	// exchange. Where it is there with another type, the broker is unavailable. Default: false.
	CreateDestinations bool `config:"create_destinations"`
	// MaxMessageBytes is the server's own limit (max_message_size), so that a payload above it fails for
	// good and by itself; at most 512 MiB, as in RabbitMQ. A limit that is too high is corrected by the
	// server's first refusal, at the cost of a channel and perhaps of duplicates. Default:
	// 16 MiB.
	MaxMessageBytes int `config:"max_message_bytes,max=536870912"`
	// TLS has the authorities that are trusted and a certificate of one's own, with a URL that begins with
	// amqps://. The URL's own parameters (cacertfile, certfile, keyfile, server_name_indication) are then
	// ignored. Default: the system's authorities.
	TLS *adapter.TLS `config:"tls"`

	// The settings below exist in Go alone.

	// TLSConfig is in place of TLS where a program has it in memory. It must not be changed afterwards.
	TLSConfig *tls.Config `json:"-" yaml:"-"`
	// RoutingKey makes the routing key of a message, as from destination and type, so that queues can be
	// bound by both. It is called concurrently, and must neither change nor keep the message. Default:
	// the destination.
	RoutingKey func(m *brokers.Message) string `json:"-" yaml:"-"`
	// Heartbeat is how often client and server assure each other that they are there; a connection that
	// is silent for longer than 1.5 times that is lost. At least one second, at most what the server asks
	// for. The parameter heartbeat of the URL goes before it. Default: 10 s.
	Heartbeat time.Duration
}

// drop is the value of [Settings.Unroutable] by which a message may be lost.
const drop = "drop"

// Type is the type rabbitmq of configurations. It is built into package fanout.
func Type() adapter.Type {
	return adapter.Type{Name: "rabbitmq", New: func() adapter.Settings { return new(Settings) }}
}

// Open implements [adapter.Settings] by the function [Open].
func (s *Settings) Open(context.Context, string) (brokers.Broker, error) {
	b, err := Open(*s)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// Check implements [adapter.Settings].
func (s *Settings) Check(section adapter.Section) {
	if section.Require("url", "amqp://user:password@host:5672/vhost") && section.Sound("url") {
		adapter.CheckURL(section, "url", s.URL, "amqp://", "amqps://")
	}
	if len(s.Exchange) > maxShort {
		section.Rejectf("exchange", "has %d bytes: AMQP takes %d", len(s.Exchange), maxShort)
	}
	s.TLS.Check(section, "tls")
	if !section.Has("url") || !section.Sound("url") {
		return
	}
	address := s.URL.Reveal()
	if !strings.HasPrefix(address, "amqps:") {
		section.Removef("tls", "does nothing without TLS: let url begin with amqps://, or remove it")
	}
	if _, err := parseURL(address); err != nil {
		section.Rejectf("url", "%s", strings.TrimPrefix(err.Error(), "rabbitmq: open: "))
	}
	server := adapter.ServerOf(s.URL, "5672", "/", "")
	if strings.HasPrefix(address, "amqps:") {
		server = strings.Replace(adapter.ServerOf(s.URL, "5671", "/", ""), ":5671 ", ":5672 ", 1) // one server, by default
	}
	o := s.options()
	section.Place(adapter.Place{Servers: []string{server}, Inside: o.exchange, Elsewhere: "server, virtual host or exchange"})
}

// options are what the settings mean.
func (s *Settings) options() options {
	o := options{
		exchange: DefaultExchange, routingKey: s.RoutingKey, optional: s.Unroutable == drop, declare: s.CreateDestinations,
		maxBytes: defaultMaxMessageBytes, heartbeat: defaultHeartbeat, tls: s.TLSConfig,
	}
	if s.Exchange != "" {
		o.exchange = s.Exchange
	}
	if o.routingKey == nil {
		o.routingKey = func(m *brokers.Message) string { return m.Destination }
	}
	if s.Expiration >= time.Millisecond {
		o.expiration = s.Expiration
	}
	if s.MaxMessageBytes > 0 {
		o.maxBytes = min(s.MaxMessageBytes, maxMessageBytes)
	}
	if s.Heartbeat >= time.Second {
		o.heartbeat = s.Heartbeat
	}
	return o
}

// options of a broker, as its settings say.
type options struct {
	exchange   string
	routingKey func(*brokers.Message) string
	optional   bool // messages may be unroutable
	declare    bool
	expiration time.Duration // 0 = none
	maxBytes   int
	heartbeat  time.Duration
	tls        *tls.Config
}

func (s *Settings) check(o *options, secured bool) error {
	switch {
	case len(o.exchange) > maxShort:
		return fmt.Errorf("rabbitmq: open: the name of the exchange has %d bytes, AMQP takes %d", len(o.exchange), maxShort)
	case s.Unroutable != "" && s.Unroutable != "wait" && s.Unroutable != drop:
		return fmt.Errorf("rabbitmq: open: Unroutable is %q: use wait or drop", s.Unroutable)
	case o.tls != nil && !secured:
		return errors.New("rabbitmq: open: TLS needs a URL that begins with amqps://")
	}
	return nil
}
