package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	// DefaultMaxMessageBytes is what a topic takes unless [WithMaxMessageBytes] says otherwise: Kafka's
	// own default of max.message.bytes, for a batch with all its headers
	// (https://kafka.apache.org/documentation/#topicconfigs_max.message.bytes).
	DefaultMaxMessageBytes = 1_048_588

	leastMaxMessageBytes = 16 << 10
	mostMaxMessageBytes  = 64 << 20

	defaultTimeout = 10 * time.Second
)

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

type options struct {
	topic      func(destination string) string
	maxBytes   int
	timeout    time.Duration
	topics     *TopicSettings // nil = missing topics are not created
	dial       dialer
	client     []kgo.Opt
	mechanisms int
}

func defaults() options {
	return options{topic: TopicName, maxBytes: DefaultMaxMessageBytes, timeout: defaultTimeout, dial: (&net.Dialer{Timeout: dialTimeout}).DialContext}
}

// An Option changes a broker. Options that have no sensible meaning (a negative number) count as not
// given.
type Option func(*options)

// WithTopic sets how the topic of a destination is found. Default: [TopicName]. It is called often and
// concurrently.
func WithTopic(topic func(destination string) string) Option {
	return func(o *options) {
		if topic != nil {
			o.topic = topic
		}
	}
}

// WithMaxMessageBytes tells the broker max.message.bytes of the topics, which bounds a batch, and so a
// message with its headers. Default [DefaultMaxMessageBytes]; 16 KiB to 64 MiB. A larger message is
// final; one that only the server finds too large is final as well, at the cost of its batch, which is
// sent again in parts.
func WithMaxMessageBytes(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.maxBytes = min(max(n, leastMaxMessageBytes), mostMaxMessageBytes)
		}
	}
}

// WithTimeout bounds one round of a call of Publish (what goes out together) and one question, within
// the context of the call. Default 10 s. What is not confirmed by then counts as an outage, of its
// partition where a server has said something in the round, and else of the broker. A server that does not
// answer for a second while others do is not waited for that long.
func WithTimeout(d time.Duration) Option {
	return func(o *options) {
		if d > 0 {
			o.timeout = d
		}
	}
}

// TopicSettings are the settings of topics that a broker creates. The zero value leaves both to the
// cluster (Kafka 2.4 or later).
type TopicSettings struct {
	// Partitions of a topic; 0 = num.partitions of the cluster.
	Partitions int32
	// Replicas of each partition; 0 = default.replication.factor of the cluster.
	Replicas int16
}

// WithCreateTopics creates topics that do not exist when something is published to them. The user needs
// the right to create them. Default: a missing topic makes its destination unavailable. The cluster's
// own creation of topics (auto.create.topics.enable) is never asked for.
func WithCreateTopics(settings TopicSettings) Option {
	return func(o *options) { o.topics = &settings }
}

// WithTLS makes connections use TLS. An empty ServerName means each server's host. Nil counts as not
// given. The configuration must not be changed afterwards.
func WithTLS(config *tls.Config) Option {
	return func(o *options) {
		if config != nil {
			o.dial = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: config}).DialContext
		}
	}
}

// WithSASLPlain logs in by SASL PLAIN, which sends the password as it is: use it with TLS.
func WithSASLPlain(user, password string) Option {
	return mechanism(kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
}

// WithSASLScram256 logs in by SCRAM-SHA-256.
func WithSASLScram256(user, password string) Option {
	return mechanism(kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
}

// WithSASLScram512 logs in by SCRAM-SHA-512.
func WithSASLScram512(user, password string) Option {
	return mechanism(kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
}

// WithOAuthBearer logs in by OAUTHBEARER. token is asked at each connection, concurrently, and has to
// return within its context.
func WithOAuthBearer(token func(ctx context.Context) (string, error)) Option {
	return mechanism(kgo.SASL(oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		secret, err := token(ctx)
		if err != nil {
			return oauth.Auth{}, fmt.Errorf("token: %w", err)
		}
		return oauth.Auth{Token: secret}, nil
	})))
}

func mechanism(opt kgo.Opt) Option {
	return func(o *options) {
		o.client = append(o.client, opt)
		o.mechanisms++
	}
}

// WithClientID is how the servers' logs and quotas name the connections; default "fanout".
func WithClientID(id string) Option {
	return func(o *options) {
		if id != "" {
			o.client = append(o.client, kgo.ClientID(id))
		}
	}
}
