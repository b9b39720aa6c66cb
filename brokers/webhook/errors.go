package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
)

// saidf is an error that names the endpoint by its host alone: path and user may be secrets.
func (b *Broker) saidf(format string, args ...any) error {
	return fmt.Errorf("webhook: %s://%s: "+format, append([]any{b.url.Scheme, b.url.Host}, args...)...)
}

// judge says what an answer other than 2xx means. None of them ends a message at once. The documentation of the package has the same table.
func judge(status int, said error) error {
	out := func(advice string) error {
		return brokers.Unavailable(brokers.ScopeBroker, adapter.Advise(said, advice))
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return out("check the secret and the URL, with the partner")
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return out("check the URL; the partner may have given it up")
	case http.StatusTooManyRequests:
		return out("lower the rate of the broker")
	}
	switch {
	case status < 400:
		return out("redirects are not followed: name the URL itself")
	case status < 500:
		// Of the message, or of everything: an endpoint with another secret may answer 400 as well as
		// 401. An attempt is spent even then, as is usual with webhooks, and nothing is final: of two
		// servers behind one address the new one may be wrong.
		const advice = "if it refuses all messages: check the secret, the URL and the format, with the partner"
		return brokers.Refused(brokers.ScopeBroker, brokers.Retryable(adapter.Advise(said, advice)))
	case status == http.StatusServiceUnavailable:
		return brokers.Unavailable(brokers.ScopeBroker, said)
	default: // of the endpoint, or of a gateway before it: it may have failed at the message
		return brokers.Unreachable(brokers.ScopeBroker, said)
	}
}

// unreachable classifies the error of a request that got no answer, or of a connection.
func (b *Broker) unreachable(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // whose text would have the URL
	}
	var (
		untrusted *tls.CertificateVerificationError
		noTLS     tls.RecordHeaderError
		noName    *net.DNSError
		refused   *net.OpError
		advice    string
	)
	switch {
	case errors.As(err, new(addressError)): // which says itself what to do
	case errors.As(err, &untrusted):
		advice = "check the host, or name its certificate authority (tls.ca_file, WithTLS)"
	case errors.As(err, &noTLS), errors.Is(err, http.ErrSchemeMismatch):
		advice = "the port does not talk TLS"
	case errors.As(err, &noName):
		advice = "check the host"
	case errors.Is(err, context.DeadlineExceeded):
		advice = "no answer in time"
	case errors.As(err, &refused) && refused.Op == "dial":
		advice = "check that the endpoint is up, and that it can be reached from here"
	}
	return brokers.Unreachable(brokers.ScopeBroker, adapter.Advise(b.saidf("%w", err), advice))
}
