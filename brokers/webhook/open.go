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
	// DefaultConcurrency is how many requests are under way at once.
	DefaultConcurrency = 8
	mostConcurrency    = 256
	// DefaultTimeout bounds one request, from its beginning until the answer is there.
	DefaultTimeout = 15 * time.Second

	dialTimeout      = 5 * time.Second
	mostAnswerHeader = 64 << 10
)

type options struct {
	concurrency int
	timeout     time.Duration
	maxBytes    int
	plain       bool
	private     bool
	tls         *tls.Config
}

// An Option changes a broker. Options that have no sensible meaning (a negative number) count as not
// given.
type Option func(*options)

// WithConcurrency sets how many requests are under way at once, over all calls. Default 8; at most 256.
// Messages of one key are sent one after the other, whatever it is.
func WithConcurrency(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.concurrency = min(n, mostConcurrency)
		}
	}
}

// WithTimeout bounds one request, within the context of the call. Default 15 s. What is not answered by
// then counts as an outage of the endpoint.
func WithTimeout(d time.Duration) Option {
	return func(o *options) {
		if d > 0 {
			o.timeout = d
		}
	}
}

// WithMaxMessageBytes tells the broker the largest body that the endpoint takes; a larger payload is
// final. Default: no limit known.
func WithMaxMessageBytes(n int) Option {
	return func(o *options) {
		if n > 0 {
			o.maxBytes = n
		}
	}
}

// WithPlainHTTP allows an endpoint without TLS. Everybody on the way can read, though not change, what
// is sent.
func WithPlainHTTP() Option { return func(o *options) { o.plain = true } }

// WithPrivateNetworks allows an endpoint whose address is not public. Do so for endpoints of your own,
// never for those that others may enter.
func WithPrivateNetworks() Option { return func(o *options) { o.private = true } }

// WithTLS sets the authorities that are trusted, or a certificate of one's own. Nil counts as not given.
// The configuration must not be changed afterwards.
func WithTLS(config *tls.Config) Option {
	return func(o *options) {
		if config != nil {
			o.tls = config.Clone()
		}
	}
}

// Open returns a broker for the endpoint of a URL, https://partner.example/hooks, that signs with all
// of the secrets. User and password of the URL become basic authentication. It does not connect yet: use
// Ping to find out.
func Open(endpoint string, secrets []string, opts ...Option) (*Broker, error) {
	o := options{concurrency: DefaultConcurrency, timeout: DefaultTimeout}
	for _, opt := range opts {
		opt(&o)
	}
	keys, err := parseSecrets(secrets)
	if err != nil {
		return nil, fmt.Errorf("webhook: open: %w", err)
	}
	u, err := parseURL(endpoint, &o)
	if err != nil {
		return nil, fmt.Errorf("webhook: open: %w", err)
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	if !o.private {
		dialer.Control = onlyPublic
	}
	if o.tls == nil {
		o.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secured := o.tls.Clone() // which the transport changes
	if secured.ClientSessionCache == nil {
		// Endpoints end connections after some number of requests, and each worker then connects.
		secured.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	b := &Broker{options: o, url: u, keys: keys, dialer: dialer, slots: make(chan struct{}, o.concurrency)}
	b.client = &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: secured, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
			// A connection that went silent would take every further message over HTTP/2, until the system gives
			// it up after a quarter of an hour: so it is asked for a sign of life before a request is given up.
			HTTP2:               &http.HTTP2Config{SendPingTimeout: o.timeout / 2, PingTimeout: o.timeout / 4},
			MaxIdleConnsPerHost: o.concurrency, IdleConnTimeout: 90 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: mostAnswerHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return b, nil
}

// parseURL says what is wrong with a URL without showing it: its path may be a secret.
func parseURL(text string, o *options) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("the URL is not understood: use https://partner.example/path")
	case u.Scheme == "http" && !o.plain:
		return nil, errors.New("the URL begins with http://, so that everybody on the way could read what is sent: use https://, or allow it (allow_http, WithPlainHTTP)")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the URL begins with %q: use https://", u.Scheme+"://")
	case u.Fragment != "":
		return nil, errors.New(`the URL has a fragment ("#"), which is not sent: remove it`)
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil && !o.private && !isPublic(address) {
		return nil, addressError{address}
	}
	return u, nil
}
