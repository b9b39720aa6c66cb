package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// tokenReuse is how long a token is used for further connections, unless it expires before: one that the
// cluster does not take any more is not kept for hours.
const tokenReuse = time.Minute

// maxTokenError bounds what an endpoint's answer adds to an error.
const maxTokenError = 500

// clientCredentials gets tokens as client credentials of OAuth 2.0. The endpoint is trusted as the servers
// are. It is not followed elsewhere, since the secret would go there.
func clientCredentials(login *SASL, secured *tls.Config) func(context.Context) (string, error) {
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
