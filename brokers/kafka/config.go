package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/config"
)

// FromConfig opens a broker of type kafka with the settings of a configuration, as [Open] does. A
// relay is given it as
//
//	fanout.WithBrokerType(config.TypeKafka, kafka.FromConfig)
func FromConfig(_ context.Context, _ string, cfg config.Broker) (brokers.Broker, error) {
	settings := cfg.Kafka
	secured, err := cfg.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("kafka: open: %w", err)
	}
	if n := cfg.MaxMessageBytes; n > 0 && (n < leastMaxMessageBytes || n > mostMaxMessageBytes) {
		return nil, fmt.Errorf("kafka: open: max_message_bytes is %d: use %d to %d", n, leastMaxMessageBytes, mostMaxMessageBytes)
	}
	opts := []Option{WithMaxMessageBytes(cfg.MaxMessageBytes)}
	opts = append(opts, WithTLS(secured))
	switch login := settings.SASL; login.Mechanism {
	case config.SASLPlain:
		opts = append(opts, WithSASLPlain(login.Username, login.Password.Reveal()))
	case config.SASLScram256:
		opts = append(opts, WithSASLScram256(login.Username, login.Password.Reveal()))
	case config.SASLScram512:
		opts = append(opts, WithSASLScram512(login.Username, login.Password.Reveal()))
	case config.SASLOAuthBearer:
		opts = append(opts, WithOAuthBearer(clientCredentials(login, secured)))
	}
	if cfg.CreateDestinations {
		topics := settings.Topics                                                                                                    // whose bounds the configuration has checked
		opts = append(opts, WithCreateTopics(TopicSettings{Partitions: int32(topics.Partitions), Replicas: int16(topics.Replicas)})) //nolint:gosec // see above
	}
	servers := strings.Split(settings.BootstrapServers, ",")
	for i := range servers {
		servers[i] = strings.TrimSpace(servers[i])
	}
	b, err := Open(servers, opts...)
	if err != nil {
		return nil, err // and not a broker that is a nil *Broker
	}
	return b, nil
}

// tokenReuse is how long a token is used for further connections, unless it expires before: one that the
// cluster does not take any more is not kept for hours.
const tokenReuse = time.Minute

// maxTokenError bounds what an endpoint's answer adds to an error.
const maxTokenError = 500

// clientCredentials gets tokens as client credentials of OAuth 2.0. The endpoint is trusted as the servers
// are. It is not followed elsewhere, since the secret would go there.
func clientCredentials(login config.KafkaSASL, secured *tls.Config) func(context.Context) (string, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	if secured != nil {
		transport.TLSClientConfig = secured.Clone()
		transport.TLSClientConfig.ServerName = "" // that of the cluster
	}
	client := &http.Client{
		Transport: transport, Timeout: defaultTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	grant := clientcredentials.Config{
		TokenURL: login.TokenURL, ClientID: login.ClientID, ClientSecret: login.ClientSecret.Reveal(), Scopes: login.Scopes,
	}
	var (
		token *oauth2.Token
		since time.Time
	)
	turn := make(chan struct{}, 1) // a lock that ends with a context
	return func(ctx context.Context) (string, error) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if token.Valid() && time.Since(since) < tokenReuse {
			return token.AccessToken, nil
		}
		fresh, err := grant.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
		if err != nil {
			if text := err.Error(); len(text) > maxTokenError {
				err = errors.New(strings.ToValidUTF8(text[:maxTokenError], "") + "...")
			}
			return "", err
		}
		token, since = fresh, time.Now()
		return token.AccessToken, nil
	}
}
