package webhook

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

const (
	mostConcurrency = 256

	dialTimeout      = 5 * time.Second
	mostAnswerHeader = 64 << 10
)

// Open returns a broker for an endpoint. It does not connect yet: use Ping to find out.
func Open(settings Settings) (*Broker, error) {
	settings = withDefaults(settings)
	keys, err := parseSecrets(settings.Secrets)
	if err != nil {
		return nil, fmt.Errorf("webhook: open: %w", err)
	}
	u, err := parseURL(&settings)
	if err != nil {
		return nil, fmt.Errorf("webhook: open: %w", err)
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	if !settings.AllowPrivateNetworks {
		dialer.Control = onlyPublic
	}
	secured := settings.TLSConfig
	if secured == nil {
		if secured, err = settings.TLS.Config(); err != nil {
			return nil, fmt.Errorf("webhook: open: %w", err)
		}
	}
	if secured == nil {
		secured = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	b := &Broker{settings: settings, tls: secured.Clone(), url: u, keys: keys, dialer: dialer, slots: make(chan struct{}, settings.Concurrency)}
	secured = secured.Clone() // which the transport changes
	if secured.ClientSessionCache == nil {
		// Endpoints end connections after some number of requests, and each worker then connects.
		secured.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	b.client = &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: secured, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
			// A connection that went silent would take every further message over HTTP/2, until the system gives
			// it up after a quarter of an hour: so it is asked for a sign of life before a request is given up.
			HTTP2:               &http.HTTP2Config{SendPingTimeout: settings.RequestTimeout / 2, PingTimeout: settings.RequestTimeout / 4},
			MaxIdleConnsPerHost: settings.Concurrency, IdleConnTimeout: 90 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: mostAnswerHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return b, nil
}

// parseURL says what is wrong with a URL without showing it: its path may be a secret.
func parseURL(s *Settings) (*url.URL, error) {
	u, err := url.Parse(s.URL.Reveal())
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("the URL is not understood: use https://partner.example/path")
	case u.Scheme == "http" && !s.AllowHTTP:
		return nil, errors.New("the URL begins with http://, so that anyone on the path could read what is sent: use https://, or allow it (allow_http)")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the URL begins with %q: use https://", u.Scheme+"://")
	case u.Fragment != "":
		return nil, errors.New(`the URL has a fragment ("#"), which is not sent: remove it`)
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil && !s.AllowPrivateNetworks && !isPublic(address) {
		return nil, addressError{address}
	}
	return u, nil
}
