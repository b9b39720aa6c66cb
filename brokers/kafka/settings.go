package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

const (
	// defaultMaxMessageBytes is what a topic takes where [Settings.MaxMessageBytes] says nothing: Kafka's
	// own default of max.message.bytes, for a batch with all its headers
	// (https://kafka.apache.org/documentation/#topicconfigs_max.message.bytes).
	defaultMaxMessageBytes = 1_048_588

	leastMaxMessageBytes = 16 << 10
	mostMaxMessageBytes  = 64 << 20

	defaultTimeout = 10 * time.Second
)

// Settings are those of one broker, in Go and in a configuration of type kafka. What has no sensible
// meaning (a negative number) counts as not given.
type Settings struct {
	// BootstrapServers are addresses (host:port; the port is 9092 where there is none) of some servers of
	// the cluster, with commas between; one that answers tells of the others. Required.
	BootstrapServers string `config:"bootstrap_servers"`
	// SASL is how to log in. Default: not at all, or by the certificate in TLS.
	SASL SASL `config:"sasl"`
	// TLS makes connections use TLS; the zero value of it trusts the system's authorities. Default: nil,
	// no TLS.
	TLS *adapter.TLS `config:"tls"`
	// CreateDestinations creates topics that do not exist when something is published to them. The user
	// needs the right to create them. The cluster's own creation of topics (auto.create.topics.enable) is
	// never asked for. Default: false, a missing topic makes its destination unavailable.
	CreateDestinations bool `config:"create_destinations"`
	// Topics are the settings of those that are created.
	Topics TopicSettings `config:"topics"`
	// MaxMessageBytes is max.message.bytes of the topics, which bounds a batch, and so a message with its
	// headers; 16 KiB to 64 MiB. A larger message is final; one that only the server finds too large is
	// final as well, at the cost of its batch, which is sent again in parts. Default:
	// 1,048,588, as in Kafka.
	MaxMessageBytes int `config:"max_message_bytes,min=16384,max=67108864"`

	// The settings below exist in Go alone.

	// TLSConfig is in place of TLS where a program has it in memory. An empty ServerName means each
	// server's host. It must not be changed afterwards.
	TLSConfig *tls.Config `json:"-" yaml:"-"`
	// Topic finds the topic of a destination. It is called often and concurrently. Default: [TopicName].
	Topic func(destination string) string `json:"-" yaml:"-"`
	// Timeout bounds one round of a call of Publish (what goes out together) and one question, within the
	// context of the call. What is not confirmed by then counts as an outage, of its partition where a
	// server has said something in the round, and else of the broker. A server that does not answer for
	// a second while others do is not waited for that long. Default: 10 s.
	Timeout time.Duration
	// ClientID is how the servers' logs and quotas name the connections. Default: "fanout".
	ClientID string
	// Dial connects to a server in place of the broker, which then does nothing about TLS: through a proxy,
	// say. It is called concurrently. Default: TCP, or TLS, within 3 s.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-" yaml:"-"`

	client []kgo.Opt // of tests
}

// SASL is how to log in to a Kafka cluster. The zero value is not at all.
type SASL struct {
	// Mechanism is PLAIN, which sends the password as it is, so that TLS is needed with it;
	// SCRAM-SHA-256; SCRAM-SHA-512; or OAUTHBEARER. Required, but where there is a Token.
	Mechanism string `config:"mechanism,one=PLAIN|SCRAM-SHA-256|SCRAM-SHA-512|OAUTHBEARER"`
	// Username and Password are those of the first three. Required with them.
	Username string         `config:"username"`
	Password adapter.Secret `config:"password"`
	// TokenURL (https://), ClientID and ClientSecret are of OAUTHBEARER: where tokens come from, as
	// client credentials of OAuth 2.0 (RFC 6749, 4.4). Required with it.
	TokenURL     string         `config:"token_url"`
	ClientID     string         `config:"client_id"`
	ClientSecret adapter.Secret `config:"client_secret"`
	// Scopes that are asked for. Default: none.
	Scopes []string `config:"scopes"`
	// Token is where tokens come from in place of TokenURL, in Go alone. It is asked at each connection,
	// concurrently, and has to return within its context.
	Token func(ctx context.Context) (string, error) `json:"-" yaml:"-"`
}

// TopicSettings are the settings of topics that a broker creates. The zero value leaves both to the
// cluster (Kafka 2.4 or later).
type TopicSettings struct {
	// Partitions of a topic. Default: 0, num.partitions of the cluster.
	Partitions int `config:"partitions,max=100000"`
	// Replicas of each partition. Default: 0, default.replication.factor of the cluster.
	Replicas int `config:"replicas,max=100"`
}

// Type is the type kafka of configurations. A program that delivers passes it to
// fanout.WithBrokerType.
func Type() adapter.Type {
	return adapter.Type{Name: "kafka", New: func() adapter.Settings { return new(Settings) }}
}

// Open implements [adapter.Settings] by the function [Open].
func (s *Settings) Open(context.Context, string) (brokers.Broker, error) {
	b, err := Open(*s)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

const (
	saslPlain  = "PLAIN"
	saslScram  = "SCRAM-SHA-256"
	saslScram5 = "SCRAM-SHA-512"
	saslTokens = "OAUTHBEARER"
)

// Check implements [adapter.Settings].
func (s *Settings) Check(section adapter.Section) {
	if section.Require("bootstrap_servers", "kafka-1:9092,kafka-2:9092") && section.Sound("bootstrap_servers") {
		if err := checkServers(s.servers()); err != nil {
			section.Rejectf("bootstrap_servers", "%s", err)
		}
		place := adapter.Place{Elsewhere: "cluster"}
		for _, server := range s.servers() {
			place.Servers = append(place.Servers, adapter.ServerOf(adapter.Secret("kafka://"+server), "9092", "", ""))
		}
		section.Place(place)
	}
	if section.Has("sasl") {
		s.SASL.check(section)
	}
	s.TLS.Check(section, "tls")
	if section.Sound("create_destinations") && !s.CreateDestinations {
		section.Removef("topics", "does nothing without create_destinations: true")
	}
}

// check looks at how to log in: by a password, or by tokens.
func (s *SASL) check(section adapter.Section) {
	wanted, foreign := []string{"username", "password"}, []string{"token_url", "client_id", "client_secret", "scopes"}
	if s.Mechanism == saslTokens {
		wanted, foreign = foreign[:3], wanted
		if section.Has("sasl.token_url") && section.Sound("sasl.token_url") && !strings.HasPrefix(s.TokenURL, "https://") {
			section.Rejectf("sasl.token_url", "must begin with https://")
		}
	}
	wanted = append([]string{"mechanism"}, wanted...)
	for _, key := range wanted {
		if !section.Has("sasl." + key) {
			section.Rejectf("sasl", "%s and %s are all required", strings.Join(wanted[:len(wanted)-1], ", "), wanted[len(wanted)-1])
			break
		}
	}
	for _, key := range foreign {
		if s.Mechanism != "" {
			section.Removef("sasl."+key, "does nothing with mechanism %s: remove it", s.Mechanism)
		}
	}
}

func (s *Settings) servers() []string {
	servers := strings.Split(s.BootstrapServers, ",")
	for i := range servers {
		servers[i] = strings.TrimSpace(servers[i])
	}
	return servers
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// options of a broker, as its settings say.
type options struct {
	topic    func(destination string) string
	maxBytes int
	timeout  time.Duration
	topics   *TopicSettings // nil = missing topics are not created
	dial     dialer
	client   []kgo.Opt
}

// options are what the settings mean.
func (s *Settings) options() (options, error) {
	o := options{
		topic: TopicName, maxBytes: defaultMaxMessageBytes, timeout: defaultTimeout, dial: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		client: s.client,
	}
	if s.Topic != nil {
		o.topic = s.Topic
	}
	if s.MaxMessageBytes > 0 {
		o.maxBytes = min(max(s.MaxMessageBytes, leastMaxMessageBytes), mostMaxMessageBytes)
	}
	if s.Timeout > 0 {
		o.timeout = s.Timeout
	}
	if s.CreateDestinations {
		o.topics = &s.Topics
	}
	if s.ClientID != "" {
		o.client = append(o.client, kgo.ClientID(s.ClientID))
	}
	secured := s.TLSConfig
	if secured == nil && s.TLS != nil {
		var err error
		if secured, err = s.TLS.Config(); err != nil {
			return o, err
		}
	}
	if secured != nil {
		o.dial = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: secured}).DialContext
	}
	if s.Dial != nil {
		o.dial = s.Dial
	}
	login, err := s.SASL.mechanism(secured)
	if login != nil {
		o.client = append(o.client, login)
	}
	return o, err
}

// mechanism is how the client logs in; nil for not at all.
func (s *SASL) mechanism(secured *tls.Config) (kgo.Opt, error) {
	user, password := s.Username, s.Password.Reveal()
	if s.Token != nil {
		if s.Mechanism != "" && s.Mechanism != saslTokens || s.TokenURL != "" || user != "" {
			return nil, errors.New("SASL has a Token and another way to log in: use one")
		}
		return tokens(s.Token), nil
	}
	switch s.Mechanism {
	case saslTokens:
		return tokens(clientCredentials(s, secured)), nil
	case saslPlain:
		return kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()), nil
	case saslScram:
		return kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()), nil
	case saslScram5:
		return kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()), nil
	}
	if s.Mechanism == "" && user == "" && password == "" && s.TokenURL == "" {
		return nil, nil //nolint:nilnil // there is no login
	}
	return nil, fmt.Errorf("SASL.Mechanism is %q: use %s, %s, %s or %s", s.Mechanism, saslPlain, saslScram, saslScram5, saslTokens)
}

// tokens logs in by tokens.
func tokens(token func(context.Context) (string, error)) kgo.Opt {
	return kgo.SASL(oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		secret, err := token(ctx)
		if err != nil {
			return oauth.Auth{}, fmt.Errorf("token: %w", err)
		}
		return oauth.Auth{Token: secret}, nil
	}))
}
